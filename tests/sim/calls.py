"""The calls of a simulated node. A message may be lost or arrive twice, and a process may be busy
with each call, so that calls queue behind each other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from peercached.membership import Heartbeat, HeartbeatAnswer, NodeAddress
from peercached.peer.membership.embedded.calls import MemberCalls
from peercached.peer.rpc.failures import CallFailed, TimedOut

if TYPE_CHECKING:
    from sim.members import Node

Reply = Callable[[Any], None]


class Calls(MemberCalls):
    """A call keeps each end busy for `cluster.call_s` seconds. With 0 it takes no time."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._busy_until = 0.0

    def serve(self, work: Callable[[], None]) -> None:
        """Runs `work` in this process after the calls before it."""
        net, call_s = self._node.net, self._node.cluster.call_s
        if not call_s:
            self._node.do(work)
            return
        self._busy_until = max(self._busy_until, net.now) + call_s
        net.after(self._busy_until - net.now, partial(self._node.do, work))

    async def heartbeat(
        self, endpoint: str, beat: Heartbeat, only: NodeAddress | None = None
    ) -> HeartbeatAnswer:
        del only  # here an address is a name
        us, to = self._node, endpoint.rpartition(":")[0]

        def arrived(reply: Reply) -> None:
            us.cluster.beat_to(to, beat, reply)

        answer: HeartbeatAnswer = await self._ask(to, arrived, us.cluster.timing.call_deadline_s)
        return answer

    async def ping(self, target: NodeAddress) -> bool:
        cluster = self._node.cluster

        def arrived(reply: Reply) -> None:
            node = cluster.process(target)
            if node is not None:
                node.do(lambda: reply(True))

        return await self._reaches(target.node_id, arrived, cluster.timing.call_deadline_s)

    async def probe(self, via: NodeAddress, target: NodeAddress) -> bool:
        cluster = self._node.cluster

        def arrived(reply: Reply) -> None:
            node = cluster.nodes.get(via.node_id)
            if node is not None:
                node.do(lambda: asyncio.ensure_future(answered(node, reply)))

        async def answered(node: Node, reply: Reply) -> None:
            reply(await node.beats.reaches(target))

        return await self._reaches(via.node_id, arrived, 2 * cluster.timing.call_deadline_s)

    async def goodbye(self, beats: Mapping[str, Heartbeat], timeout_s: float) -> None:
        us = self._node
        for endpoint, beat in beats.items():
            to = endpoint.rpartition(":")[0]
            us.net.send(us.name, to, partial(us.cluster.beat_to, to, beat))

    async def _reaches(self, to: str, arrived: Callable[[Reply], None], deadline_s: float) -> bool:
        try:
            return bool(await self._ask(to, arrived, deadline_s))
        except CallFailed:
            return False

    async def _ask(self, to: str, arrived: Callable[[Reply], None], deadline_s: float) -> Any:
        """Sends a message to `to`, where `arrived` runs with the function that sends the answer
        back. Raises TimedOut after `deadline_s`."""
        us = self._node
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def back(found: Any) -> None:
            if not answer.done():
                answer.set_result(found)

        def reply(found: Any) -> None:
            us.net.send(to, us.name, lambda: us.do(lambda: back(found)))

        def send() -> None:
            us.net.send(us.name, to, lambda: arrived(reply))

        if us.cluster.call_s:
            self.serve(send)
        else:
            send()
        try:
            return await asyncio.wait_for(answer, deadline_s)
        except asyncio.TimeoutError:
            raise TimedOut(to, deadline_s) from None
