"""Drives Membership: its actions onto the wire, the answers back, the clock."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterable

import grpc.aio

from peercached.directory.epochs import Epochs
from peercached.membership import (
    Action,
    Heartbeat,
    HeartbeatAnswer,
    Membership,
    PushView,
    Refused,
    SendHeartbeat,
    Timing,
    ViewChanged,
)
from peercached.membership.view import View
from peercached.peer import wire
from peercached.peer.auth import AuthError
from peercached.peer.client import Peers, Unreachable, describe
from peercached.proto import peer_pb2 as pb

log = logging.getLogger(__name__)

PUSHES_AT_ONCE_MAX = 64


class Heartbeats:
    def __init__(
        self,
        membership: Membership,
        timing: Timing,
        peers: Peers,
        epochs: Epochs,
        on_view: Callable[[View], None],
        on_refused: Callable[[str], None],
    ) -> None:
        self._membership = membership
        self._timing = timing
        self._peers = peers
        self._epochs = epochs
        self._on_view = on_view
        self._on_refused = on_refused
        self._tasks: set[asyncio.Task[None]] = set()
        self._pushing = asyncio.Semaphore(PUSHES_AT_ONCE_MAX)
        self._changed = asyncio.Event()
        self._loop_task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._loop_task = asyncio.ensure_future(self._loop())

    async def settle(self, timeout_s: float) -> None:
        """Until this node is in a view, or nobody answers, or it was refused."""
        deadline = time.monotonic() + timeout_s
        while not self._membership.settled and (left := deadline - time.monotonic()) > 0:
            self._changed.clear()
            try:
                await asyncio.wait_for(self._changed.wait(), left)
            except asyncio.TimeoutError:
                return

    async def _loop(self) -> None:
        while True:
            now = time.monotonic()
            self.act(self._membership.tick(now))
            next_at = self._membership.next_at(now)
            # At least a millisecond, so that a time just missed is no busy loop.
            await asyncio.sleep(max(next_at - time.monotonic(), 0.001))

    def act(self, actions: Iterable[Action]) -> None:
        for action in actions:
            if isinstance(action, SendHeartbeat):
                self._spawn(self._beat(action))
            elif isinstance(action, PushView):
                self._spawn(self._push(action))
            elif isinstance(action, ViewChanged):
                self._on_view(action.view)
            elif isinstance(action, Refused):
                self._on_refused(action.reason)
        self._changed.set()

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def on_heartbeat(
        self, beat: Heartbeat, epochs: list[tuple[bytes, int]]
    ) -> tuple[HeartbeatAnswer, list[tuple[bytes, int]]]:
        self._epochs.learn(epochs)
        answer, actions = self._membership.on_heartbeat(beat, time.monotonic())
        self.act(actions)
        return answer, self._epochs.some()

    def on_leave(self, node_id: str, incarnation: int) -> None:
        self.act(self._membership.on_leave(node_id, incarnation, time.monotonic()))

    async def _beat(self, action: SendHeartbeat) -> None:
        head = self._membership.heads[action.head]
        try:
            answer = await self._send(head.endpoint, action.beat)
        except (Unreachable, AuthError, ValueError) as error:
            self._failed(action.head, str(error))
        except grpc.aio.AioRpcError as error:
            self._failed(action.head, describe(head.endpoint, error))
        except Exception as error:
            self._failed(action.head, f"{type(error).__name__}: {error}")
            raise
        else:
            self.act(self._membership.answered(action.head, answer, time.monotonic()))

    def _failed(self, rank: int, problem: str) -> None:
        head = self._membership.heads[rank]
        if head.answered or head.attempts == 1:
            log.warning("head %s cannot be reached: %s", head.endpoint, problem)
        self.act(self._membership.failed(rank, problem, time.monotonic()))

    async def _send(self, endpoint: str, beat: Heartbeat) -> HeartbeatAnswer:
        link = self._peers.link(endpoint)
        request = wire.heartbeat_message(beat, self._epochs.some())
        # The handshake counts too: all of it within the deadline of one heartbeat.
        try:
            reply: pb.HeartbeatReply = await asyncio.wait_for(
                link.call("Heartbeat", request, self._timing.call_deadline_s),
                self._timing.call_deadline_s,
            )
        except asyncio.TimeoutError as error:
            raise Unreachable(f"{endpoint} did not answer in time") from error
        self._epochs.learn((e.namespace_id, e.epoch) for e in reply.epochs)
        return wire.answer_of(reply)

    async def _push(self, action: PushView) -> None:
        async with self._pushing:
            if action.beat.view_number < self._membership.view.number:
                return  # a newer one follows
            try:
                await self._send(action.to.endpoint, action.beat)
            except (Unreachable, AuthError, ValueError, grpc.aio.AioRpcError) as error:
                log.debug("view %d not pushed: %s", action.beat.view_number, error)

    async def leave(self, timeout_s: float) -> None:
        """Tells all heads, in parallel; who does not hear it finds out by the TTL."""
        address = self._membership.address
        request = pb.LeaveRequest(node_id=address.node_id, incarnation=address.incarnation)
        heads = [
            head.endpoint
            for rank, head in enumerate(self._membership.heads)
            if rank != self._membership.own_rank and head.answered
        ]
        calls = (self._peers.link(e).call("Leave", request, timeout_s) for e in heads)
        await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), timeout_s)

    async def stop(self) -> None:
        for task in (self._loop_task, *self._tasks):
            if task is not None:
                task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
