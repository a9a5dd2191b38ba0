"""Events and departures outlive the daemon."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any, cast

import pytest

from peercached.history import departures as departures_module
from peercached.history import event_log
from peercached.history.departures import Departed, Departures
from peercached.history.event_log import KEPT_S, Event, EventLog
from peercached.history.keeper import WRITE_EVERY_S, HistoryKeeper
from peercached.history.store import HistoryStore

NOW = 1_000_000.0
LOST = Departed("b", 7, "host", NOW, True, "it did not answer")


class Clock:
    now = NOW

    @classmethod
    def time(cls) -> float:
        return cls.now


@pytest.fixture(autouse=True)
def wall_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (departures_module, event_log):
        monkeypatch.setattr(module, "time", Clock)


def opened(store: HistoryStore, now: float = NOW) -> tuple[EventLog, Departures, HistoryKeeper]:
    """The history that a start reads from the file."""
    Clock.now = now
    events = EventLog("a")
    departures = Departures(events, cast(Any, None), 5.0)
    return events, departures, HistoryKeeper(events, departures, store)


def test_next_start_knows_events_and_lost_nodes_for_a_day(tmp_path: Path) -> None:
    store = HistoryStore(str(tmp_path), "a")
    events, departures, keeper = opened(store)
    departures.restore([LOST])
    events.add("lost", "It did not answer.", "b")
    asyncio.run(keeper.stop())

    events, departures, _ = opened(store)
    assert departures.all() == [LOST]
    events.add("started", "again")
    assert [(event.number, event.kind) for event in events.after(0)] == [
        (1, "lost"),
        (2, "started"),
    ]

    events, departures, _ = opened(store, NOW + KEPT_S + 1)
    assert (departures.all(), events.after(0)) == ([], [])
    assert events.number == 1, "numbers go on, for those who ask for later ones"


def test_changes_are_written_a_few_seconds_apart(tmp_path: Path) -> None:
    store = HistoryStore(str(tmp_path), "a")
    events, _, keeper = opened(store)

    async def writes() -> None:
        keeper.tend(0.0)
        assert not store.load().events, "nothing has happened"
        for second in range(1, 4):
            events.add("finding", f"{second}")
            keeper.tend(float(second))
            await asyncio.sleep(0)
        events.add("over", "at last")
        await keeper.stop()

    asyncio.run(writes())
    assert [event.text for event in store.load().events] == ["1", "2", "3", "at last"]
    assert WRITE_EVERY_S > 3


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[" * 100_000,
        "[]",
        '{"format": 9}',
        '{"format": 1, "number": 1, "events": [{}], "departed": []}',
        '{"format": 1, "number": Infinity, "events": [], "departed": []}',
    ],
)
def test_file_that_makes_no_sense_counts_as_none(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = HistoryStore(str(tmp_path), "a")
    assert store.path is not None
    store.path.write_text(text)
    with caplog.at_level(logging.WARNING):
        assert store.load().number == 0
    assert "earlier events and lost nodes are not shown" in caplog.text


def test_folder_that_cannot_be_written_is_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = HistoryStore(str(tmp_path / "missing"), "a")
    events, _, keeper = opened(store)
    for _ in range(2):
        events.add("finding", "Something.")
        asyncio.run(keeper.stop())
    assert caplog.text.count("a restart forgets events") == 1
    assert Event(1, NOW, "finding", "a", "Something.") in events.after(0)
