"""Clears that etcd has lost are written to it again by a node that knows them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

from harness.fake_engine import FakeEngine, digest_of
from harness.waiting import eventually

from peercached.directory.epochs import Epochs
from peercached.membership import Timing
from peercached.peer.membership.etcd.client import EtcdError
from peercached.peer.membership.etcd.epochs import EtcdEpochs
from peercached.proto import etcd_pb2

TIMING = Timing(heartbeat_interval_s=0.01, member_ttl_s=1.0)


class Etcd:
    """Keys and one watch of them. end_session() ends it with EtcdError."""

    def __init__(self) -> None:
        self.keys: dict[bytes, bytes] = {}
        self._answers: asyncio.Queue[Any] = asyncio.Queue()

    async def read(self, prefix: bytes) -> tuple[list[Any], int]:
        return [etcd_pb2.KeyValue(key=key, value=self.keys[key]) for key in self.keys], 1

    async def put(self, key: bytes, value: bytes) -> None:
        self.keys[key] = value
        self._changed(etcd_pb2.Event.PUT, key, value)

    def delete(self, key: bytes) -> None:
        del self.keys[key]
        self._changed(etcd_pb2.Event.DELETE, key, b"")

    def end_session(self) -> None:
        self._answers.put_nowait(None)

    def _changed(self, type: Any, key: bytes, value: bytes) -> None:
        event = etcd_pb2.Event(type=type, kv=etcd_pb2.KeyValue(key=key, value=value))
        self._answers.put_nowait(etcd_pb2.WatchResponse(events=[event]))

    @asynccontextmanager
    async def watch(self, prefix: bytes, revision: int) -> AsyncIterator[AsyncIterator[Any]]:
        async def answers() -> AsyncIterator[Any]:
            while (answer := await self._answers.get()) is not None:
                yield answer
            raise EtcdError("the session ends")

        yield answers()


async def until(condition: Callable[[], bool]) -> None:
    await asyncio.to_thread(eventually, condition)


async def test_a_clear_that_etcd_has_lost_is_written_again() -> None:
    etcd, engine = Etcd(), FakeEngine()
    engine.epochs = {digest_of("cleared"): 7}
    epochs = EtcdEpochs(cast(Any, etcd), "/p", TIMING, Epochs(cast(Any, engine)))
    key = f"/p/epochs/{digest_of('cleared').hex()}".encode()
    put = asyncio.ensure_future(epochs.put())
    follow = asyncio.ensure_future(epochs.follow())
    await until(lambda: etcd.keys == {key: b"7"})
    etcd.delete(key)
    await until(lambda: etcd.keys == {key: b"7"})
    etcd.end_session()
    with suppress(EtcdError):
        await follow
    etcd.keys.clear()  # restored from an old backup, or set up anew
    follow = asyncio.ensure_future(epochs.follow())
    await until(lambda: etcd.keys == {key: b"7"})
    for task in (put, follow):
        task.cancel()
