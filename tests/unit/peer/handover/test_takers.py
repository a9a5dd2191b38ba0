"""The choice of nodes that take the pages of a draining node."""

from peercached.directory.placement import Node
from peercached.membership import NodeAddress
from peercached.peer.handover.takers import SETTLED_S, takers


def node(index: int, since: float = 0.0) -> Node:
    return Node(index, NodeAddress(f"n{index}", 1, "10.0.0.1", 1, 2), since=since)


OWN = node(0)
NOW = 100.0


def test_each_turn_begins_with_another_one() -> None:
    nodes = [OWN, node(1), node(2), node(3)]
    firsts = [takers(nodes, OWN, turn, NOW)[0].index for turn in range(6)]
    assert firsts == [1, 2, 3, 1, 2, 3]
    assert takers([OWN], OWN, 4, NOW) == []


def test_suspect_and_leaving_nodes_get_no_handover() -> None:
    suspect, leaving, well = node(1), node(2), node(3)
    suspect.suspect = leaving.leaving = True
    assert takers([OWN, suspect, leaving, well], OWN, 0, NOW) == [well]


def test_newcomers_are_asked_last_for_handover() -> None:
    newcomer, settled = node(1, NOW - SETTLED_S / 2), node(2, NOW - SETTLED_S)
    for turn in range(4):
        assert takers([OWN, newcomer, settled], OWN, turn, NOW) == [settled, newcomer]
