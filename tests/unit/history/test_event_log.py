"""The last events: bounded in number and age."""

import pytest

from peercached.history import event_log
from peercached.history.event_log import EVENTS_MAX, KEPT_S, EventLog


class Clock:
    now = 1000.0

    @classmethod
    def time(cls) -> float:
        return cls.now


@pytest.fixture(autouse=True)
def wall_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_log, "time", Clock)
    monkeypatch.setattr(Clock, "now", Clock.now)


def test_only_later_events_are_told_to_who_knows_the_earlier_ones() -> None:
    log = EventLog("a")
    log.add("joined", "at b:1", "b")
    log.add("finding", "Something.")
    assert [(e.number, e.node_id) for e in log.after(0)] == [(1, "b"), (2, "a")]
    assert [e.text for e in log.after(1)] == ["Something."]
    assert log.after(2) == []
    assert log.document(1)["events"][0]["kind"] == "finding"


def test_events_end_after_a_day() -> None:
    log = EventLog("a")
    log.add("joined", "early", "b")
    Clock.now += KEPT_S / 2
    log.add("joined", "late", "c")
    Clock.now += KEPT_S / 2 + 1
    assert [e.text for e in log.after(0)] == ["late"]


def test_there_are_at_most_so_many_and_none_is_long() -> None:
    log = EventLog("a")
    for number in range(EVENTS_MAX + 10):
        log.add("finding", f"{number} " + "x" * 10_000)
    events = log.after(0)
    assert len(events) == EVENTS_MAX
    assert events[0].number == 11
    assert len(events[-1].text) <= 500
