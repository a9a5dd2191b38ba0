"""Shows the stories of several kinds of nodes beside each other."""

from collections.abc import Callable
from statistics import median

from rich.console import Console
from rich.table import Table

from llm.beside import Beside
from llm.scenario import Story


def show_beside(told: Beside, console: Console) -> None:
    console.print(
        "the same prompts for all; none: no reuse, median beside the others; host memory: shared "
        "memory that a worker has mapped for KV, which SGLang pins if there is CUDA"
    )
    console.print(_times(told))
    console.print(_sums(told))


def _times(told: Beside) -> Table:
    names = list(told.stories)
    table = Table(title="time to first token", title_justify="left")
    for place, column in enumerate(["", "on", "prompt", "reused", "none", *names]):
        table.add_column(column, justify="left" if place < 2 else "right")
    for of_all in zip(*(story.compared for story in told.stories.values()), strict=True):
        first = of_all[0]
        table.add_row(
            first.what,
            first.worker,
            f"{first.prompt_tokens:,}",
            " / ".join(dict.fromkeys(f"{each.reused.reused_tokens:,}" for each in of_all)),
            f"{median(each.computed.first_token_s for each in of_all):.2f} s",
            *(f"{each.reused.first_token_s:.2f} s" for each in of_all),
        )
    return table


def _sums(told: Beside) -> Table:
    stories = list(told.stories.values())
    table = Table()
    table.add_column(style="bold")
    for name in ("none", *told.stories):
        table.add_column(name, justify="right")

    def row(what: str, none: str, of: Callable[[Story], str], style: str = "") -> None:
        table.add_row(what, none, *map(of, stories), style=style)

    row("tokens reused", "0", lambda story: f"{story.reused_tokens:,}")
    row("of them from the other node", "0", lambda story: f"{story.fetched_tokens:,}")
    row(
        "time to first token, turns 2 and later",
        f"{median(story.computed_s for story in stories):.2f} s",
        lambda story: f"{story.reused_s:.2f} s",
    )
    row("times sooner than none", "", lambda story: f"{story.computed_s / story.reused_s:.1f}")
    row(
        "of this time, lookups and loads",
        "",
        lambda story: f"{sum(each.reused.fetch_s for each in story.turns[1:]) * 1e3:.0f} ms",
    )
    row(
        "host memory of a worker",
        _mib(told.host_kv_bytes),
        lambda story: " / ".join(dict.fromkeys(map(_mib, story.host_kv_bytes))),
    )
    row("pool of a daemon", "", lambda story: _mib(story.pool_bytes))
    row("pages of the turns in both pools", "", lambda story: _mib(story.stored_bytes))
    row("logits that differ in any bit", "", lambda story: str(story.wrong_logits))
    row("one bit flipped", "", lambda story: "seen" if story.flip_was_seen else "NOT SEEN")
    style = "green" if told.right else "bold red"
    row("WRONG TOKENS", "", lambda story: str(story.wrong_tokens), style)
    return table


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / (1 << 20):.0f} MiB"
