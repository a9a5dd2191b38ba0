"""A member with the secret sends every number of every message at its limits. Others still work:
reads meet their deadlines, and sets, removals, clears and joins succeed. Memory stays bounded."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
from harness.background import Background
from harness.cluster import Cluster, Daemon
from harness.fixtures import MakeCluster
from harness.liar import Liar
from harness.pages import keys_of
from harness.secret_file import secret_file
from harness.waiting import eventually

from peercache_client import Status
from peercached.peer.rpc.failures import CallFailed
from peercached.proto import peer_pb2 as pb

SECRET = os.urandom(32).hex().encode()
KEYS = keys_of("of everybody", 64)
GROWTH_MAX = 64 << 20
_SERVICE = pb.DESCRIPTOR.services_by_name["Peer"]
# Handshake needs no session. The others are legitimate: a member may forget a node or relay an
# operator's call.
_LEFT_OUT = {"Handshake", "ForgetNode", "Operate"}
CALLS = {
    method.name: getattr(pb, method.input_type.name)
    for method in _SERVICE.methods
    if method.name not in _LEFT_OUT
}


def memory_of(daemon: Daemon) -> int:
    fields = Path(f"/proc/{daemon.pid}/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


def bombs(request: type[Any]) -> list[bytes]:
    """Messages of 8 MiB that fill each list with the shortest parts. Parsed, each would take two
    hundred MiB."""
    return [
        bytes([field.number << 3 | 2, 0]) * (4 << 20)
        for field in request.DESCRIPTOR.fields
        if field.is_repeated or (field.message_type is not None and field.name == "view")
    ]


async def drop(link: Any, call: str, bomb: bytes) -> None:
    """A busy daemon may have put the liar out meanwhile: then it shakes hands again."""
    for last in (False, True):
        await link.ready_within(30)
        send = link._channel.unary_unary(f"/peercached.peer.v1.Peer/{call}")
        with pytest.raises(grpc.aio.AioRpcError, match=r"parts|session") as refused:
            await send(bomb, metadata=link.metadata, timeout=30)
        if "session" not in str(refused.value):
            return
        assert not last
        link.connect_anew()


async def tell(link: Any, call: str, lie: Any) -> None:
    with suppress(grpc.aio.AioRpcError, CallFailed):  # a refusal is fine
        await link.call(call, lie, timeout_s=5)


@pytest.fixture
def trio(make_cluster: MakeCluster, tmp_path: Path) -> Cluster:
    cluster = make_cluster(3, start=False, cluster_secret_file=secret_file(tmp_path, SECRET))
    for daemon in cluster.daemons[:2]:
        daemon.start()
    cluster.wait_complete()
    return cluster


def test_no_number_of_a_member_harms_the_others(trio: Cluster) -> None:
    a, b, c = trio.daemons
    writer, reader = a.attach(), b.attach()
    assert all(writer.set(KEYS))
    before = {daemon.node_id: memory_of(daemon) for daemon in (a, b)}

    async def lie() -> int:
        count = 0
        async with Liar([a, b], SECRET) as liar:
            for call, request in CALLS.items():
                for number, message in enumerate(liar.lies(request)):
                    await tell(liar.links[number % 2], call, message)
                    count += 1
                for bomb in bombs(request):
                    await drop(liar.links[0], call, bomb)
        return count

    def read() -> None:
        assert all(reader.get(KEYS))

    with Background(read) as reading:
        told = asyncio.run(lie())
        assert reading.rounds > 0
    reader.client.calls.check()
    assert told > 300, "hardly any lie was told"
    for daemon in (a, b):
        assert memory_of(daemon) - before[daemon.node_id] < GROWTH_MAX
        assert "Traceback" not in daemon.log_text()

    # Limits that stop the liar must not stop others, during the lies or later.
    c.start()
    trio.wait_complete(60)
    late = c.attach(namespace="new")
    new = keys_of("new", 64)
    assert all(late.set(new))
    eventually(lambda: a.attach(namespace="new").has(new))
    assert late.client.clear()
    assert not any(b.attach(namespace="new").get(new))
    assert all(late.set(new))
    assert a.attach(namespace="new").has(new)
    assert all(c.attach().get(KEYS))
    assert all(status in (Status.ok, Status.absent) for status in writer.client.remove(KEYS))
    assert not any(c.attach().get(KEYS))


def test_every_call_of_the_service_is_lied_in() -> None:
    assert set(CALLS) | _LEFT_OUT == {method.name for method in _SERVICE.methods}
