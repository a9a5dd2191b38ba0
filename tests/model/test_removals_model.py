"""The rules of docs/consistency.md suffice in the model of removals, and the search sees faults."""

import pytest

from model.removals import FAULTS, STORIES, search
from model.rules import RULES
from model.world import Story, World, healed


@pytest.mark.parametrize("name", FAULTS)
def test_without_its_rule_this_fault_is_found(name: str) -> None:
    story, kind, rule, without = FAULTS[name]
    assert kind in search(story, RULES._replace(**{rule: without}), kind).stories


@pytest.mark.parametrize("name", [*FAULTS, *STORIES])
def test_no_read_finds_a_removed_page(name: str) -> None:
    story = FAULTS[name].story if name in FAULTS else STORIES[name]
    assert search(story).stories == {}


OWING = {
    "forgotten": Story({"cut": "c", "forget": "c"}, 2),
    "frozen": Story({"pause": "c", "cut": "c", "forget": "c"}, 3),
    "looked ended": Story({"cut": "c", "reject": "c"}, 2),
    "started again": Story({"kill": "bc"}, 1, remove="a", starts_max=2),
}


@pytest.mark.parametrize("name", OWING)
def test_all_debts_are_paid_once_all_nodes_reach_each_other(name: str) -> None:
    def pays(w: World) -> None:
        after = healed(w)
        assert after.removal is None
        for node in after.nodes:
            assert node.sure
            assert not any(
                node.table[process].missed_from for process in node.view - {node.process}
            )

    search(OWING[name], each=pays)


def test_a_node_that_missed_nothing_keeps_its_pages() -> None:
    def keeps(w: World) -> None:
        if w.begun == 0:
            holder = healed(w).nodes[2]
            assert holder.page == 1 and holder.shown == 0

    story = Story(
        {"pause": "c", "cut": "bc", "forget": "c", "kill": "bc"}, 2, remove="a", starts_max=3
    )
    search(story, each=keeps)
