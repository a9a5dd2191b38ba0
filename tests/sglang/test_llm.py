"""A transformer's KV cache crosses nodes: the same logits, to the bit, as without a cache."""

import io

import pytest
from llm.beside import Beside, run_beside
from llm.beside_report import show_beside
from llm.model import Architecture
from llm.node import Kind
from llm.report import show
from llm.scenario import Comparison, Scenario, Sizes, Story
from rich.console import Console

PAGE_TOKENS = 64
ARCHITECTURE = Architecture(
    layers=3, hidden=128, query_heads=4, kv_heads=2, head_dim=32, inner=256, vocabulary=512
)
SIZES = Sizes(first_prompt=300, each_turn=130, turns=4, handed_over=600, answer=70)
STAGING_BYTES = 64 << 20  # of the linker
SGLANG_S_HOST_RATIO = 2
HANDED_OVER_TOKENS = 600 // PAGE_TOKENS * PAGE_TOKENS
# Answers are longer than a page, so that later turns also get pages made while decoding.


PAIRS: dict[str, tuple[Kind, Kind]] = {
    "linker": ("linker", "linker"),
    "HiCache and direct linker": ("HiCache", "direct linker"),
}


@pytest.fixture(scope="module")
def beside() -> Beside:
    return run_beside(ARCHITECTURE, SIZES, print, PAIRS)


@pytest.fixture(scope="module", params=["HiCache", *PAIRS])
def story(request: pytest.FixtureRequest) -> Story:
    if request.param in PAIRS:
        beside: Beside = request.getfixturevalue("beside")
        return beside.stories[request.param]
    return Scenario(ARCHITECTURE, SIZES, print).run()


def same(compared: Comparison) -> bool:
    assert len(compared.reused.tokens) == SIZES.answer
    return compared.same_tokens and compared.same_logits


def test_each_turn_on_the_other_node_reuses_its_cached_tokens(story: Story) -> None:
    assert all(map(same, story.turns))
    known = 0
    for number, turn in enumerate(story.turns):
        reused = turn.reused
        assert reused.cached_tokens + reused.fetched_tokens == known
        assert (reused.fetched_tokens > 0) == (number > 0)
        assert reused.computed_tokens == turn.prompt_tokens - known
        known = (turn.prompt_tokens + SIZES.answer - 1) // PAGE_TOKENS * PAGE_TOKENS


def test_decode_goes_on_where_prefill_stopped(story: Story) -> None:
    handed_over = story.deaths[0]
    assert handed_over.reused.fetched_tokens == HANDED_OVER_TOKENS
    assert same(handed_over)


def test_pages_outlive_the_process_that_made_them(story: Story) -> None:
    killed = story.deaths[1]
    assert killed.reused.fetched_tokens == HANDED_OVER_TOKENS
    assert same(killed)


def test_without_their_daemon_all_is_computed_again_at_once(story: Story) -> None:
    killed = story.deaths[2]
    assert killed.reused.fetched_tokens == 0
    assert killed.reused.computed_tokens == SIZES.handed_over
    assert killed.reused.fetch_s < 2
    assert same(killed)


def test_only_rows_with_reuse_say_how_many_times_sooner(story: Story) -> None:
    console = Console(file=io.StringIO(), width=200, record=True)
    show(story, console, PAGE_TOKENS)
    rows = [line.strip()[1:-1].split("│") for line in console.export_text().splitlines()]
    times = [row[-1].strip() for row in rows if len(row) > 8]
    reuses = [each.reused for each in (*story.turns, *story.deaths)]
    assert [bool(each) for each in times] == [
        each.cached_tokens + each.fetched_tokens > 0 for each in reuses
    ]
    assert times[0] == times[-1] == "", "the first turn, and the dead daemon"


def test_a_single_wrong_bit_changes_the_logits(story: Story) -> None:
    assert story.flipped is not None
    assert story.flipped.reused.fetched_tokens == HANDED_OVER_TOKENS
    assert not story.flipped.same_logits


def test_linker_needs_less_host_memory_than_hicache(beside: Beside) -> None:
    assert beside.right
    assert beside.host_kv_bytes == 0
    assert beside.stories["linker"].host_kv_bytes == [STAGING_BYTES] * 2
    hicache, direct = beside.stories["HiCache and direct linker"].host_kv_bytes
    assert hicache >= SGLANG_S_HOST_RATIO * SIZES.pool * ARCHITECTURE.kv_bytes_per_token
    assert direct == 0


def test_linker_stores_each_page_once_as_hicache_does(beside: Beside) -> None:
    pages = (SIZES.first_prompt + 3 * SIZES.each_turn + 4 * SIZES.answer - 1) // PAGE_TOKENS
    page_bytes = PAGE_TOKENS * ARCHITECTURE.kv_bytes_per_token
    stored = {story.stored_bytes // page_bytes for story in beside.stories.values()}
    assert stored == {pages}


def test_linker_report_names_every_pair(beside: Beside) -> None:
    console = Console(file=io.StringIO(), width=200, record=True)
    show_beside(beside, console)
    rows = [line.strip()[1:-1].split("│") for line in console.export_text().splitlines()]
    last = next(row for row in rows if "WRONG TOKENS" in row[0])
    assert [cell.strip() for cell in last[2:]] == ["0"] * len(PAIRS)
