"""Shows a story as tables."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from llm.scenario import Comparison, Story


def show(story: Story, console: Console, page_tokens: int) -> None:
    console.print(
        "prompt = had on this node + got from the other one + left to compute, in tokens; "
        "without: time to first token with no cache"
    )
    console.print(_table("one conversation, turn by turn on the other node", story.turns))
    console.print(
        _table("prompts prefilled on node a, decoded on node b, while a dies", story.deaths)
    )
    pages = story.fetched_tokens // page_tokens
    reused, computed = story.reused_s, story.computed_s
    table = Table(show_header=False)
    table.add_column(style="bold")
    table.add_column()
    table.add_row("pages that came from the other node", f"{pages:,}, of {page_tokens} tokens each")
    table.add_row(
        "time to first token, turns 2 and later",
        f"{reused:.2f} s with reuse, {computed:.2f} s without: {computed / reused:.1f} times",
    )
    table.add_row(
        "logits that differ in any bit", f"{story.wrong_logits} of {len(story.compared)} answers"
    )
    table.add_row(
        "one bit flipped in a page that was got",
        "changes the logits, so the row above can fail" if story.flip_was_seen else "WAS NOT SEEN",
    )
    style = "green" if story.right else "bold red"
    table.add_row("WRONG TOKENS", str(story.wrong_tokens), style=style)
    console.print(table)


def _table(title: str, rows: Sequence[Comparison]) -> Table:
    table = Table(title=title, title_justify="left")
    for place, column in enumerate(
        ["", "on", "prompt", "had", "got", "left", "getting", "first token", "without", "times"]
    ):
        table.add_column(column, justify="left" if place < 2 else "right")
    for each in rows:
        reused, computed = each.reused, each.computed
        table.add_row(
            each.what,
            each.worker,
            f"{each.prompt_tokens:,}",
            f"{reused.cached_tokens:,}",
            f"{reused.fetched_tokens:,}",
            f"{reused.computed_tokens:,}",
            f"{reused.fetch_s * 1e3:.0f} ms",
            f"{reused.first_token_s:.2f} s",
            f"{computed.first_token_s:.2f} s",
            # Without reuse the two times differ by chance.
            f"{computed.first_token_s / reused.first_token_s:.1f}" if reused.reused_tokens else "",
        )
    return table
