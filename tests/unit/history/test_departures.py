"""Nodes that left, when and why, until they are back or forgotten."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from peercached.directory.placement import Change, Node
from peercached.health import Findings
from peercached.history import departures, event_log
from peercached.history.departures import DEPARTED_MAX, Departures
from peercached.history.event_log import KEPT_S, EventLog
from peercached.membership import Member, NodeAddress, View


class Cluster:
    """Views of a few nodes, as the placement tells of them."""

    now = 0.0

    def __init__(self) -> None:
        self.left: set[tuple[str, int]] = set()
        self.events = EventLog("a")
        self.departures = Departures(self.events, cast(Any, self), 5.0)
        self.nodes: dict[str, Node] = {}
        self.number = 0

    def has_left(self, *life: Any) -> bool:
        return life in self.left

    def view(self, **members: int) -> None:
        """Node ids and their incarnations."""
        self.number += 1
        before = dict(self.nodes)
        change = Change(View.of(self.number, [Member(made(*m)) for m in members.items()]))
        for name, incarnation in members.items():
            known = self.nodes.get(name)
            if known is None or known.address.incarnation != incarnation:
                self.nodes[name] = Node(0, made(name, incarnation))
                change.added.append(self.nodes[name])
        change.removed = [n for name, n in before.items() if self.nodes.get(name) is not n]
        for name in before.keys() - members.keys():
            change.removed.append(self.nodes.pop(name))
        self.departures.view_changed(change)

    def kinds(self) -> list[tuple[str, str]]:
        return [(event.kind, event.node_id) for event in self.events.after(0)]

    def findings(self) -> list[dict[str, str]]:
        findings = Findings()
        self.departures.say(findings.say, {})
        return findings.document()


@pytest.fixture(autouse=True)
def wall_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    Cluster.now = 1_000_000.0
    clock = SimpleNamespace(time=lambda: Cluster.now)
    for module in (departures, event_log):
        monkeypatch.setattr(module, "time", clock)


def made(name: str, incarnation: int) -> NodeAddress:
    return NodeAddress(name, incarnation, "127.0.0.1", 1, 2)


def test_a_node_that_vanishes_is_lost_until_it_is_back() -> None:
    cluster = Cluster()
    cluster.view(a=1, b=2)
    cluster.view(a=1)
    [gone] = cluster.departures.document()
    assert (gone["node_id"], gone["lost"], gone["incarnation"]) == ("b", True, 2)
    assert "did not answer for 5 s" in gone["why"]
    [finding] = cluster.findings()
    assert finding["code"] == "node_lost"
    assert "peercachectl forget b" in finding["remedy"]
    cluster.view(a=1, b=3)
    assert cluster.departures.document() == cluster.findings() == []
    assert cluster.kinds()[-2:] == [("lost", "b"), ("restarted", "b")]


def test_a_node_that_was_cut_off_has_not_restarted() -> None:
    cluster = Cluster()
    cluster.view(a=1, b=2)
    cluster.view(a=1)
    cluster.view(a=1, b=2)
    assert cluster.kinds()[-2:] == [("lost", "b"), ("joined", "b")]


def test_a_node_that_says_goodbye_needs_no_attention() -> None:
    cluster = Cluster()
    cluster.view(a=1, b=2)
    cluster.left.add(("b", 2))
    cluster.view(a=1)
    [gone] = cluster.departures.document()
    assert (gone["lost"], gone["why"]) == (False, "it left")
    assert cluster.findings() == []
    assert cluster.kinds()[-1] == ("left", "b")


def test_a_restart_within_one_view_is_no_departure() -> None:
    cluster = Cluster()
    cluster.view(a=1, b=2)
    cluster.view(a=1, b=3)
    assert cluster.departures.document() == []
    assert cluster.kinds()[-1] == ("restarted", "b")


def test_a_lost_node_is_forgotten_by_an_operator_or_after_a_day() -> None:
    cluster = Cluster()
    cluster.view(a=1, b=2, c=3)
    cluster.view(a=1)
    cluster.departures.forget("b")
    cluster.departures.forget("nobody")
    assert [one["node_id"] for one in cluster.departures.document()] == ["c"]
    Cluster.now += KEPT_S + 1
    assert cluster.departures.document() == []


def test_memory_and_sentences_are_bounded() -> None:
    cluster = Cluster()
    names: dict[str, Any] = {f"n{i:04}": 1 for i in range(DEPARTED_MAX + 50)}
    cluster.view(a=1, **names)
    cluster.view(a=1)
    assert len(cluster.departures.document()) == DEPARTED_MAX
    assert len(cluster.findings()) == 9
    assert cluster.findings()[-1]["sentence"].startswith("248 more")


def test_the_first_views_nodes_have_joined() -> None:
    cluster = Cluster()
    cluster.view(a=1)
    cluster.view(a=1, b=2)
    assert cluster.kinds() == [("joined", "a"), ("joined", "b")]


def test_a_node_that_leaves_says_nothing_of_the_others() -> None:
    cluster = Cluster()
    cluster.view(a=1, b=2)
    gone = list(cluster.nodes.values())[1:]
    cluster.departures.view_changed(Change(View.alone(made("a", 1)), removed=gone))
    assert cluster.departures.document() == cluster.findings() == []
