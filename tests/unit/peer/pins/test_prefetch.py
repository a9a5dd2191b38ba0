"""The pages that are brought to a node, and their sources."""

import asyncio
import time
from types import SimpleNamespace
from typing import Any, cast

from harness.fake_rows import RESIDENT, ROW, digest_of

from peercached.peer.pins.prefetch import Prefetch
from peercached.peer.rpc.failures import Unable

GOOD, OWN = 7, 0


class Engine:
    def __init__(self) -> None:
        self.fetched: list[tuple[int, bytes]] = []

    def fetch(
        self, holder: int, namespace_id: bytes, epoch: int, learnt_at: int, rows: bytes, ms: int
    ) -> tuple[bytes, str]:
        assert (namespace_id, epoch, learnt_at) == (b"n" * 16, 3, 5)
        assert 0 < ms <= 1000
        self.fetched.append((holder, rows))
        return b"", ""


class Node:
    def __init__(self, index: int) -> None:
        self.index, self.address = index, SimpleNamespace(node_id=f"node {index}")


class Promotes:
    async def ask(self, index: int, digests: bytes, left_s: float) -> bytes:
        del left_s
        return row_of(digests, index, RESIDENT)

    async def serve(self, digests: bytes, timeout_ms: int, warm: bool) -> bytes:
        del digests, timeout_ms, warm
        raise Unable("64 promotions are under way")


def row_of(digest: bytes, index: int, flags: int) -> bytes:
    return ROW.pack(digest, 64, 1, 1, 64, index, flags)


def bring(
    *records: tuple[str, int, int], until_s: float = 1.0
) -> tuple[list[tuple[int, bytes]], str]:
    """(key, holder, flags of its record)"""
    engine = Engine()

    async def run() -> str:
        prefetch = Prefetch(cast(Any, engine), cast(Any, Promotes()))
        nodes = {index: Node(index) for index in (GOOD, OWN)}
        found = {
            digest_of(key): (nodes[index], row_of(digest_of(key), index, flags))
            for key, index, flags in records
        }
        until = time.monotonic() + until_s
        return await prefetch.bring(b"n" * 16, 3, cast(Any, found), 5, until)

    why = asyncio.run(run())
    return engine.fetched, why


def test_pages_of_a_node_come_in_one_call() -> None:
    fetched, why = bring(("a", GOOD, RESIDENT), ("b", GOOD, RESIDENT))
    a, b = (row_of(digest_of(key), GOOD, RESIDENT) for key in "ab")
    assert fetched == [(GOOD, a + b)] and why == ""


def test_pages_on_a_disk_are_promoted_first() -> None:
    fetched, _ = bring(("a", GOOD, 0))
    assert fetched == [(GOOD, row_of(digest_of("a"), GOOD, RESIDENT))]


def test_own_pages_are_not_read_from_ourselves() -> None:
    assert bring(("a", OWN, 0)) == ([], "")


def test_nothing_is_asked_for_when_the_time_is_over() -> None:
    fetched, why = bring(("a", GOOD, RESIDENT), until_s=-1.0)
    assert fetched == [] and why == f"the pages of node {GOOD} did not come in time"
