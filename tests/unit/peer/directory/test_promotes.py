"""Promote calls: the holder bounds them, and the reader validates the answers."""

import asyncio
import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest
from harness.clock import seconds
from harness.fake_engine import (
    RESIDENT,
    ROW,
    WITHDRAW,
    FakeEngine,
    digest_of,
    unpack_rows,
)

from peercached.directory.placement import Node
from peercached.membership import NodeAddress
from peercached.news import News
from peercached.peer.directory.promotes import DIGESTS_MAX, THREADS, WAITING_MAX, Promotes
from peercached.peer.rpc.failure_detector import FailureDetector
from peercached.peer.rpc.failures import Disconnected, TimedOut, Unable

HOLDER = 5


class Link:
    """A peer that answers as the test says."""

    def __init__(self) -> None:
        self.rows: bytes | Exception = b""
        self.requests: list[Any] = []

    async def call(self, method: str, request: Any, timeout_s: float, expect: object) -> Any:
        assert method == "Promote"
        self.requests.append(request)
        if isinstance(self.rows, Exception):
            raise self.rows
        return SimpleNamespace(rows=self.rows)


def promotes(engine: object = None) -> tuple[Promotes, Link, Node]:
    link = Link()
    holder = Node(HOLDER, NodeAddress("e", 1, "10.0.0.5", 1, 2))
    placement = cast(Any, SimpleNamespace(nodes={HOLDER: holder}, own=None))
    peers = cast(Any, SimpleNamespace(link=lambda endpoint: link))
    data_plane = cast(Any, engine or FakeEngine())
    failures = FailureDetector(data_plane, placement, peers, News(), 1.0)
    return Promotes(data_plane, placement, failures, 1.0), link, holder


def test_a_holders_rows_come_back_under_our_number_of_it() -> None:
    here, link, _ = promotes()
    page, gone = digest_of("page"), digest_of("gone")
    link.rows = ROW.pack(page, 64, 3, 1, 64, 0, RESIDENT) + ROW.pack(gone, 0, 4, 0, 1, 0, WITHDRAW)
    rows = unpack_rows(asyncio.run(here.ask(HOLDER, page + gone, 1.0)))
    assert [(row[0], row[5], row[6]) for row in rows] == [
        (page, HOLDER, RESIDENT),
        (gone, HOLDER, WITHDRAW),
    ]
    assert link.requests[0].timeout_ms == 800
    assert not link.requests[0].warm


def test_malformed_promote_rows_are_ignored() -> None:
    here, link, _ = promotes()
    link.rows = b"x" * 47
    assert asyncio.run(here.ask(HOLDER, digest_of("a"), 1.0)) == b""


def test_a_slow_disk_makes_no_peer_suspect_a_dead_peer_is() -> None:
    here, link, holder = promotes()
    link.rows = TimedOut("10.0.0.5:1", 1.0)
    assert asyncio.run(here.ask(HOLDER, digest_of("a"), 1.0)) == b""
    assert not holder.suspect
    link.rows = Disconnected("10.0.0.5:1: unavailable")
    assert asyncio.run(here.ask(HOLDER, digest_of("a"), 1.0)) == b""
    assert holder.suspect
    assert asyncio.run(here.ask(HOLDER + 1, digest_of("a"), 1.0)) == b""


def test_holder_promotes_disk_pages_and_withdraws_missing_ones() -> None:
    engine = FakeEngine()
    page, gone = digest_of("page"), digest_of("gone")
    engine.disk[page] = 64
    here, _, _ = promotes(engine)
    rows = unpack_rows(asyncio.run(here.serve(page + gone, 1000, False)))
    assert [(row[0], row[6]) for row in rows] == [(page, RESIDENT), (gone, WITHDRAW)]


def test_warming_is_answered_at_once() -> None:
    engine = FakeEngine()
    here, _, _ = promotes(engine)
    assert asyncio.run(here.serve(digest_of("a"), 0, True)) == b""
    assert engine.warmed == [digest_of("a")]


@pytest.mark.parametrize("digests", [b"x" * 17, bytes(16 * (DIGESTS_MAX + 1))])
def test_too_much_and_nonsense_are_refused(digests: bytes) -> None:
    here, _, _ = promotes()
    with pytest.raises(ValueError, match=r"digests|promote at once"):
        asyncio.run(here.serve(digests, 1000, False))


def test_a_disk_that_hangs_holds_a_bounded_number_of_calls() -> None:
    released = threading.Event()
    engine = SimpleNamespace(promote=lambda digests, ms: released.wait(seconds(30)) and b"")
    here, _, _ = promotes(cast(Any, engine))

    async def story() -> None:
        calls = [
            asyncio.ensure_future(here.serve(digest_of(str(n)), 1000, False))
            for n in range(WAITING_MAX)
        ]
        await asyncio.sleep(0)
        with pytest.raises(Unable):
            await here.serve(digest_of("one more"), 1000, False)
        assert here.refused == 1
        released.set()
        await asyncio.gather(*calls)
        await here.serve(digest_of("again"), 1000, False)
        await here.stop()

    assert THREADS < WAITING_MAX
    asyncio.run(story())
