"""The model of removals judges the rules before, and those of docs/consistency.md."""

import pytest

from model.removals import FAULTS, NEW, STORIES, TODAY, search
from model.world import Story, World, healed


@pytest.mark.parametrize("name", FAULTS)
def test_the_search_finds_this_fault_in_the_rules_before(name: str) -> None:
    story, kind = FAULTS[name]
    assert kind in search(TODAY, story, kind).stories


@pytest.mark.parametrize("name", [*FAULTS, *STORIES])
def test_no_read_finds_a_removed_page(name: str) -> None:
    story = FAULTS[name].story if name in FAULTS else STORIES[name]
    assert search(NEW, story).stories == {}


OWING = {
    "forgotten": Story({"cut": "c", "forget": "c"}, 2),
    "frozen": Story({"pause": "c", "cut": "c", "forget": "c"}, 3),
    "looked ended": Story({"cut": "c", "reject": "c"}, 2),
    "started again": Story({"kill": "bc"}, 1, remove="a", starts_max=2),
}


@pytest.mark.parametrize("name", OWING)
def test_all_debts_are_paid_once_all_nodes_reach_each_other(name: str) -> None:
    def pays(w: World) -> None:
        after = healed(w, NEW)
        assert after.removal is None
        for node in after.nodes:
            assert node.sure
            assert not any(node.table[life].missed_from for life in node.view - {node.life})

    search(NEW, OWING[name], each=pays)


def test_a_node_that_missed_nothing_keeps_its_pages() -> None:
    def keeps(w: World) -> None:
        if w.begun == 0:
            holder = healed(w, NEW).nodes[2]
            assert holder.page == 1 and holder.shown == 0

    story = Story(
        {"pause": "c", "cut": "bc", "forget": "c", "kill": "bc"}, 2, remove="a", starts_max=3
    )
    search(NEW, story, each=keeps)
