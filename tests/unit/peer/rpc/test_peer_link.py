"""PeerLink with an address where nothing answers, and a closed PeerLink."""

import asyncio
import gc
from typing import Any

import pytest
from harness.links import link_from

from peercache_bench.process import free_port
from peercached.membership import NodeAddress
from peercached.peer.rpc.auth import Secret
from peercached.peer.rpc.client import PeerLink
from peercached.peer.rpc.failures import Misfit, Unreachable
from peercached.proto import peer_pb2 as pb


def nobody_there() -> PeerLink:
    own = NodeAddress("a", 1, "127.0.0.1", 1, 2)
    nobody = f"127.0.0.1:{free_port('127.0.0.1')}"
    return link_from(own, nobody, Secret(b"s" * 32), timeout_s=2.0)


async def test_abandoned_handshake_failure_raises_no_unhandled_error() -> None:
    unhandled: list[dict[str, Any]] = []

    def complain(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        # One gRPC event wakes every loop in the process, even those of other tests, and their
        # callbacks report errors here.
        if "handle" not in context:
            unhandled.append(context)

    asyncio.get_running_loop().set_exception_handler(complain)
    link = nobody_there()
    caller = asyncio.ensure_future(link.ready())
    await asyncio.sleep(0)  # starts the handshake
    handshake = link._handshake
    assert handshake is not None
    caller.cancel()
    await asyncio.wait([caller, handshake])
    del caller, handshake
    link._handshake = None
    gc.collect()
    await link.close()
    assert unhandled == []


@pytest.mark.parametrize("shaken_hands", [False, True])
async def test_a_link_that_was_closed_means_a_peer_that_is_gone(shaken_hands: bool) -> None:
    """A view change may close a link that a lookup uses. The lookup must ask other owners, not
    fail."""
    link = nobody_there()
    link.metadata = (("session", "1"),) if shaken_hands else ()
    await link.close()
    with pytest.raises(Unreachable, match="no member any more"):
        await link.call("Ping", pb.PingRequest())


@pytest.mark.parametrize("said", [b"HTTP/1.1 404 Not Found\r\n\r\n", b"PCAT" + bytes(60)])
async def test_an_address_that_is_no_meta_port_is_named_so(said: bytes) -> None:
    """As from metrics_port and data_port. gRPC's own words are about frames of HTTP/2."""

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        await writer.drain()

    link = nobody_there()
    host, port = link.endpoint.split(":")
    server = await asyncio.start_server(answer, host, int(port))
    with pytest.raises(Misfit) as caught:
        await link.ready()
    assert str(caught.value) == (
        f"{link.endpoint}: something else than meta_port answers there, perhaps data_port or "
        "metrics_port: name meta_port"
    )
    await link.close()
    server.close()


async def test_try_at_once_reopens_only_a_failed_open_link() -> None:
    """gRPC's backoff before the next attempt is useful only for addresses without a known
    process."""
    link = nobody_there()
    fresh = link._channel
    link.try_at_once()
    assert link._channel is fresh, "it has not failed yet"
    with pytest.raises(Unreachable):
        await link.ready()
    link.try_at_once()
    assert link._channel is not fresh
    await link.close()
    closed = link._channel
    link.try_at_once()
    assert link._channel is closed
