"""Findings that begin and end become events."""

from typing import Any, cast

from peercached.health import Findings, kinds
from peercached.history.event_log import EventLog
from peercached.history.findings import LOOK_S, FindingEvents


class Node:
    """Findings that the test sets: subject and sentence."""

    def __init__(self) -> None:
        self.log = EventLog("a")
        self.suspects: list[tuple[str, str]] = []
        self.looks = 0
        self.events = FindingEvents(self.log, cast(Any, self))

    def findings(self) -> Findings:
        self.looks += 1
        findings = Findings()
        for about, sentence in self.suspects:
            findings.say(kinds.PEER_SUSPECT, sentence, about=about)
        return findings

    def seen(self) -> list[tuple[str, str]]:
        return [(event.kind, event.text) for event in self.log.after(0)]


def test_a_finding_is_an_event_when_it_begins_and_when_it_ends() -> None:
    node = Node()
    node.events.tend(0.0)
    node.suspects = [("b", "b is suspect.")]
    node.events.tend(LOOK_S)
    node.suspects = [("b", "b is suspect (for 5 s)."), ("c", "c is suspect.")]
    node.events.tend(2 * LOOK_S)
    node.suspects.pop(0)
    node.events.tend(3 * LOOK_S)
    assert node.seen() == [
        ("finding", "b is suspect."),
        ("finding", "c is suspect."),
        ("over", "No longer: b is suspect."),
    ]


def test_it_looks_seldom_but_at_once_when_told() -> None:
    node = Node()
    for tick in range(100):
        node.events.tend(tick * LOOK_S / 50)
    assert node.looks == 2
    node.suspects = [("b", "b is suspect.")]
    node.events.look_soon()
    node.events.look_soon()
    node.events.tend(2 * LOOK_S - 0.1)
    assert node.looks == 3
    assert node.seen() == [("finding", "b is suspect.")]
