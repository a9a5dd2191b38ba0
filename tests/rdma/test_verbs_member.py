"""An independent reader in pyverbs: the memory of a pool that a member may READ, and its limits."""

import asyncio
import struct
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import grpc.aio
import pytest
from harness.cluster import Cluster, Daemon
from harness.content import Content
from harness.pages import keys_of
from harness.waiting import eventually

from peercached.admin.client import AdminClient
from peercached.admin.status import Located
from peercached.peer.rpc.failures import Refused
from rdma.rdma_devices import devices
from rdma.verbs_member import Access, VerbsMember
from rdma.verbs_reader import ReadFailed, VerbsReader

PAGE_BYTES = 100_000
HEADER = struct.Struct("<16sQQQQIIQ")
COMMITTED = 0x434F4D4D


def located(daemon: Daemon, key: bytes) -> Located:
    with AdminClient(str(daemon.admin_path), timeout_s=20) as admin:
        return admin.locate("test", key)


@contextmanager
def reader() -> Iterator[VerbsReader]:
    with VerbsReader(devices()[-1], bytes_max=1 << 20) as made:
        yield made


def claim(cluster: Cluster, work: Coroutine[Any, Any, None]) -> None:
    """Runs `work`, then waits until the cluster is complete again."""
    try:
        asyncio.run(asyncio.wait_for(work, 100))
    finally:
        cluster.wait_complete(60)


async def member_of(member: VerbsMember, daemon: Daemon) -> None:
    """Waits until that daemon has the member in its view."""

    def seen() -> bool:
        members = daemon.status()["membership"]["members"]
        return member.own.node_id in [one["node_id"] for one in members]

    await asyncio.to_thread(eventually, seen, 30, "the daemon knows the member")


def test_a_member_reads_the_page_that_its_record_names(mixed: Cluster) -> None:
    holder = mixed[0]
    (key,) = keys_of("read by verbs", 1)
    assert all(holder.attach(page_bytes=PAGE_BYTES).set([key]))
    found = located(holder, key)
    (there,) = found.holders

    async def work() -> None:
        async with VerbsMember(mixed[0]) as member:
            await member_of(member, holder)
            with reader() as reading:
                access = await member.connect(holder, reading)
                assert there.length == PAGE_BYTES
                slot = reading.read(
                    access.address_of(there.offset),
                    access.rkey_of(there.offset),
                    HEADER.size + there.length,
                )
            header = HEADER.unpack_from(slot)
            incarnation = holder.status()["node"]["incarnation"]
            assert header[0] == bytes.fromhex(found.digest)
            assert header[1] == access.incarnation == _number(incarnation)
            assert header[2:4] == (there.generation, PAGE_BYTES)
            assert header[5] == COMMITTED
            assert slot[HEADER.size :] == Content().page(key, PAGE_BYTES)

    claim(mixed, work())


def test_a_member_can_read_nothing_but_the_pool_and_write_nothing(mixed: Cluster) -> None:
    holder = mixed[0]
    keys = keys_of("not to be written", 4)
    pages = holder.attach()
    assert all(pages.set(keys))

    async def refused(member: VerbsMember, what: str) -> None:
        """Uses a new queue pair for each attempt, because an error ends it."""
        with reader() as reading:
            access = await member.connect(holder, reading)
            with pytest.raises(ReadFailed, match=r"remote_(access|invalid_request)"):
                ATTEMPTS[what](reading, access)

    async def work() -> None:
        async with VerbsMember(mixed[0]) as member:
            await member_of(member, holder)
            for what in ATTEMPTS:
                await refused(member, what)

    claim(mixed, work())
    assert pages.has(keys)


def behind_the_pool(reading: VerbsReader, access: Access) -> None:
    last = access.pool_bytes - 32
    reading.read(access.address_of(last), access.rkey_of(last), 64)


def before_the_pool(reading: VerbsReader, access: Access) -> None:
    reading.read(access.address_of(0) - 64, access.rkey_of(0), 64)


def over_the_end_of_a_chunk(reading: VerbsReader, access: Access) -> None:
    last = access.chunk_bytes - 32
    reading.read(access.address_of(last), access.rkey_of(last), 64)


def into_the_pool(reading: VerbsReader, access: Access) -> None:
    reading.write(access.address_of(0), access.rkey_of(0), bytes(64))


ATTEMPTS = {
    attempt.__name__: attempt
    for attempt in (behind_the_pool, before_the_pool, over_the_end_of_a_chunk, into_the_pool)
}


def test_member_that_left_the_view_can_no_longer_read(mixed: Cluster) -> None:
    holder = mixed[0]

    async def work() -> None:
        async with VerbsMember(mixed[0]) as member:
            await member_of(member, holder)
            with reader() as reading:
                access = await member.connect(holder, reading)
                assert len(reading.read(access.address_of(0), access.rkey_of(0), 64)) == 64
                await member.leave()
                await asyncio.to_thread(mixed.wait_complete, 60)
                with pytest.raises(ReadFailed, match="retries_exceeded"):
                    reading.read(access.address_of(0), access.rkey_of(0), 64, timeout_s=30)
            with reader() as reading, pytest.raises(Refused) as caught:
                await member.connect(holder, reading)
            assert caught.value.code is grpc.StatusCode.FAILED_PRECONDITION

    claim(mixed, work())


def _number(incarnation: str | int) -> int:
    return incarnation if isinstance(incarnation, int) else int(incarnation, 16)
