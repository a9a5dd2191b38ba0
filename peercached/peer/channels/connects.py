"""RDMA channels, the reader's side: the data plane has made its end and wants the holder's.

Each wish (the event connect_channel) gets exactly one answer, even if the call fails: either
`channel_connected` or `channel_refused`. The data plane keeps a queue pair until then.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

from peercached.directory.placement import Change, Node, Placement
from peercached.peer.channels.device_threads import DeviceThreads
from peercached.peer.channels.ends import rail_of
from peercached.peer.rpc.failure_detector import FailureDetector
from peercached.peer.rpc.failures import CallFailed, TimedOut
from peercached.peer.rpc.tasks import Tasks
from peercached.proto import peer_pb2 as pb
from peercached.timeout import within

if TYPE_CHECKING:
    from peercached._native import Engine

log = logging.getLogger(__name__)

# Concurrent calls to one holder. Fewer than a holder accepts (accepts.py), because a call that
# timed out here may still run there.
CONNECTS_PER_PEER_MAX = 4


class Connects:
    """`timeout_s` bounds each wish, including its wait for a turn."""

    def __init__(
        self,
        engine: Engine,
        placement: Placement,
        failures: FailureDetector,
        timeout_s: float,
    ) -> None:
        self._engine = engine
        self._placement = placement
        self._failures = failures
        self._timeout_s = timeout_s
        self._turns: dict[Node, asyncio.Semaphore] = {}
        self._tasks: set[asyncio.Task[tuple[Node, bytes]]] = set()
        self._handing_over = Tasks()
        self._threads = DeviceThreads("connect-channel")
        self.connected = 0
        self.refused = 0

    def wish(self, index: int, connect_id: int, end: bytes, closed: bytes) -> None:
        """Takes an event's fields: the holder, our packed ChannelEnd, and the packed u32 numbers of
        its closed channels. On the event loop's thread."""
        task = asyncio.ensure_future(self._connect(index, end, closed))
        self._tasks.add(task)

        # A callback, because a task that is cancelled before its first step would never answer.
        def done(task: asyncio.Task[tuple[Node, bytes]]) -> None:
            self._tasks.discard(task)
            self._answer(connect_id, task)

        task.add_done_callback(done)

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()

    def end(self) -> None:
        """Call after stop(), once all wishes are answered."""
        self._threads.stop()

    def view_changed(self, change: Change) -> None:
        for node in change.removed:
            self._turns.pop(node, None)
            self._threads.forget(node)

    def _answer(self, connect_id: int, task: asyncio.Task[tuple[Node, bytes]]) -> None:
        error = None if task.cancelled() else task.exception()
        if task.cancelled():
            self._refused(connect_id, "this daemon stops")
        elif error is None:
            self.connected += 1
            self._handing_over.spawn(self._hand_over(connect_id, *task.result()))
        elif isinstance(error, _Refused):
            self._refused(connect_id, str(error))
        else:
            log.error("an RDMA channel could not be connected", exc_info=error)
            self._refused(connect_id, f"{type(error).__name__}: {error}")

    async def _hand_over(self, connect_id: int, node: Node, answer: bytes) -> None:
        connected = partial(self._engine.channel_connected, connect_id, answer)
        try:
            await self._threads.run(node, rail_of(answer), connected)
        except RuntimeError as error:  # no thread available
            self._refused(connect_id, str(error))

    def _refused(self, connect_id: int, why: str) -> None:
        self.refused += 1
        self._engine.channel_refused(connect_id, why)

    async def _connect(self, index: int, end: bytes, closed: bytes) -> tuple[Node, bytes]:
        """Returns the holder and its packed ChannelAnswer. _Refused if there is none."""
        node = self._placement.nodes.get(index)
        if node is None or node is self._placement.own:
            raise _Refused("it is no longer in the view")
        if node not in self._turns:
            self._turns[node] = asyncio.Semaphore(CONNECTS_PER_PEER_MAX)
        turns = self._turns[node]
        name, endpoint = node.address.node_id, node.address.endpoint
        try:
            asked = self._ask(node, turns, end, closed)
            return node, await within(self._timeout_s, asked)
        except asyncio.TimeoutError as error:
            raise _Refused(str(TimedOut(endpoint, self._timeout_s))) from error
        except CallFailed as error:
            raise _Refused(str(error)) from error
        except ValueError as error:
            raise _Refused(f"{name} gave a malformed answer: {error}") from error

    async def _ask(self, node: Node, turns: asyncio.Semaphore, end: bytes, closed: bytes) -> bytes:
        request = pb.ConnectChannelRequest(end=end, closed=closed)
        async with turns:
            # It may live, but fail to resolve our address on that rail.
            reply = await self._failures.call(node, "ConnectChannel", request, may_be_slow=True)
        rail_of(reply.answer)
        return bytes(reply.answer)


class _Refused(Exception):
    """No channel; the text says why."""
