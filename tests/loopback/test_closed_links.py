"""A call on a link that closes meanwhile fails as if the peer were gone, and its caller goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from harness.links import link_from

from peercached.membership import NodeAddress
from peercached.peer.rpc.auth import Secret
from peercached.peer.rpc.client import PeerLink
from peercached.peer.rpc.failures import Unreachable
from peercached.proto import peer_pb2 as pb


@asynccontextmanager
async def link_to_a_mute() -> AsyncIterator[PeerLink]:
    """A link to a server that accepts connections and never speaks."""
    mute = await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0)
    port = mute.sockets[0].getsockname()[1]
    own = NodeAddress("a", 1, "127.0.0.1", 1, 2)
    link = link_from(own, f"127.0.0.1:{port}", Secret(b""), timeout_s=20.0)
    yield link
    await link.close()
    mute.close()


async def calls_under_way(link: PeerLink, count: int) -> list[asyncio.Task[object]]:
    calls = [asyncio.ensure_future(link.call("Ping", pb.PingRequest())) for _ in range(count)]
    done, _ = await asyncio.wait(calls, timeout=0.05)
    assert not done
    return calls


async def test_calls_that_wait_for_the_handshake_end_with_their_link() -> None:
    async with link_to_a_mute() as link:
        calls = await calls_under_way(link, 3)
        await link.close()
        for call in calls:
            with pytest.raises(Unreachable):
                await call


async def test_a_caller_that_is_cancelled_itself_stays_cancelled() -> None:
    async with link_to_a_mute() as link:
        [call] = await calls_under_way(link, 1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
