"""Record streams survive the loss of their channel."""

from __future__ import annotations

import asyncio

from harness.clock import seconds
from harness.loop_node import LoopNode, eventually, free_port, in_sync


def test_stream_resyncs_after_its_channel_is_closed() -> None:
    """As when a new certificate replaces the channel: gRPC ends the call as if the stream's own
    task were cancelled."""

    async def claim() -> None:
        a, b = free_port(), free_port()
        async with LoopNode("a", a, [a]) as one, LoopNode("b", b, [a]) as other:
            await in_sync(one, other)
            owner = next(n for n in one.daemon.placement.nodes.values() if n.address.node_id == "b")
            link = one.daemon.peers.link(owner.address.endpoint)
            [stream] = [s for s in one.daemon.streams.status() if s["state"] == "live"]
            await link._channel.close(None)
            link._open()
            await eventually(
                lambda: any(s["resyncs"] > stream["resyncs"] for s in one.daemon.streams.status())
            )
            await in_sync(one, other)

    asyncio.run(asyncio.wait_for(claim(), seconds(30)))
