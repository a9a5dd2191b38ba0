"""Removals of one node "a" with the fake data plane: what members may tell it of them, and a
state_dir that hangs."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from harness.clock import seconds
from harness.fake_engine import FakeEngine, digest_of

from peercached.directory.epochs import EPOCH_MAX, EPOCH_TOLD_MAX, Epochs
from peercached.membership import NodeAddress
from peercached.news import News
from peercached.peer.removals.catch_up import RemovalCatchUp
from peercached.peer.removals.member import DIGESTS_MAX, Removals, remove_request
from peercached.peer.rpc import wire
from peercached.proto import peer_pb2 as pb
from peercached.removals.debts import Debts
from peercached.removals.ledger import NamespaceEpoch, RemovalId
from peercached.removals.store import Remembered, RemovalStore

OWN = SimpleNamespace(address=NodeAddress("a", 1, "10.0.0.1", 1, 2))
OTHER = SimpleNamespace(address=NodeAddress("b", 2, "10.0.0.2", 1, 2))
NAMESPACE = digest_of("namespace")
NOBODY = cast(Any, None)


def removals_of(engine: FakeEngine, store: RemovalStore) -> Removals:
    placement = SimpleNamespace(
        own=OWN, nodes={0: OWN, 1: OTHER}, others=[OTHER], view=SimpleNamespace(number=1)
    )
    return Removals(
        cast(Any, engine),
        cast(Any, placement),
        Debts(OWN.address, store, False, 0),
        store,
        cast(Any, SimpleNamespace(told=told)),
        NOBODY,
        cast(Any, Epochs(cast(Any, engine))),
        None,
        News(),
    )


async def told(digests: bytes) -> set[str]:
    return set()


async def is_taken(reply: pb.MissedRemovalsReply) -> bool:
    """Whether "a" believes this answer of "b" to its question."""

    async def call(*_: object, **__: object) -> pb.MissedRemovalsReply:
        return reply

    engine = FakeEngine()
    removals = removals_of(engine, RemovalStore("", "a"))
    placement = SimpleNamespace(own=OWN, find_process=lambda _: None)
    peers = SimpleNamespace(link=lambda _: SimpleNamespace(call=call))
    catch_up = RemovalCatchUp(
        cast(Any, engine), cast(Any, placement), cast(Any, peers), removals, 1.0, 1.0, NOBODY
    )
    return await catch_up._ask(cast(Any, OTHER)) is reply


@pytest.mark.parametrize(
    ("digests", "used", "taken"),
    [
        (1, None, True),
        (DIGESTS_MAX, (NAMESPACE, 0), True),
        (1, (NAMESPACE, EPOCH_TOLD_MAX), True),
        (0, None, False),
        (DIGESTS_MAX + 1, None, False),
        (1, (NAMESPACE, EPOCH_MAX - 1), False),
        (1, (b"", 1), False),
        (1, (2 * NAMESPACE, 1), False),
    ],
)
async def test_a_removal_that_members_would_refuse_is_not_taken_from_a_member(
    digests: int, used: NamespaceEpoch | None, taken: bool
) -> None:
    running = remove_request(RemovalId(2, 1), digests * digest_of("page"), used)
    assert await is_taken(pb.MissedRemovalsReply(running=[running])) is taken
    told = pb.MissedRemovalsReply(epochs=wire.epoch_messages([used] if used else []))
    assert await is_taken(told) is (taken or used is None)


async def test_epochs_used_that_make_no_sense_are_forgotten_at_the_start(tmp_path: Path) -> None:
    store = RemovalStore(str(tmp_path), "a")
    used = [(NAMESPACE, 0), (b"", 1), (NAMESPACE, 3), (2 * NAMESPACE, 1)]
    store.save(Remembered(True, 8, 7, epochs_used=used, epochs_unknown_upto=0))
    engine = FakeEngine()
    engine.begin_removal(digest_of("page"), 1)
    assert removals_of(engine, store).epochs_missed(1) == [(NAMESPACE, 0), (NAMESPACE, 3)]


class HangingDisk(RemovalStore):
    """The journal and the file of a state_dir. Writes end when `goes_on` is set."""

    def __init__(self) -> None:
        super().__init__("", "a")
        self.goes_on = threading.Event()
        self.goes_on.set()

    def save(self, state: Remembered) -> bool:
        return self.goes_on.wait(seconds(20))

    def begin_removal(self, digests: bytes, removal: int) -> tuple[bytes, bool]:
        return b"", self.goes_on.wait(seconds(20))


async def test_a_state_dir_that_hangs_takes_no_thread_of_other_work() -> None:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    engine, disk = FakeEngine(), HangingDisk()
    cast(Any, engine).begin_removal = disk.begin_removal
    removals = removals_of(engine, disk)
    disk.goes_on.clear()
    removals.persist_unsure()
    entry = asyncio.ensure_future(removals.carry_out(RemovalId(1, 1), digest_of("page"), None))
    await asyncio.sleep(0)
    try:
        assert await asyncio.wait_for(asyncio.to_thread(lambda: "well"), seconds(5)) == "well"
        assert not entry.done()
    finally:
        disk.goes_on.set()
    assert cast(Any, await entry).kept
    await removals.stop()
