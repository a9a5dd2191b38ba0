"""PeerLink towards an address where nothing answers."""

import asyncio
import gc
from typing import Any

from peercached.demo.process import free_port
from peercached.membership import NodeAddress
from peercached.peer.auth import Secret
from peercached.peer.client import PeerLink


def test_a_handshake_that_fails_when_nobody_waits_any_more_is_no_unhandled_error() -> None:
    async def run() -> list[dict[str, Any]]:
        unhandled: list[dict[str, Any]] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: unhandled.append(context))
        own = NodeAddress("a", 1, "127.0.0.1", 1, 2)
        nobody = f"127.0.0.1:{free_port('127.0.0.1')}"
        link = PeerLink(nobody, lambda: own, Secret(b"s" * 32), None, 2.0, lambda link: None)
        caller = asyncio.ensure_future(link.ready())
        await asyncio.sleep(0)  # it has begun the handshake
        handshake = link._handshake
        assert handshake is not None
        caller.cancel()
        await asyncio.wait([caller, handshake])
        del caller, handshake
        link._handshake = None
        gc.collect()
        await link.close()
        return unhandled

    assert asyncio.run(run()) == []
