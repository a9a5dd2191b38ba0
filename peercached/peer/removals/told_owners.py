"""Asks each member which owners know its withdrawals. All waiting removals share one question.

An owner that came back, or that a holder did not reach, may still name the holder for removed
pages. So a removal is incomplete until each member has told all members of the newest view. A
member's answer covers all removals that it had carried out when it was asked.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from dataclasses import dataclass

from peercached.directory.placement import Node, Placement
from peercached.peer.removals.calls import RemovalCalls, malformed
from peercached.peer.removals.member import Removals
from peercached.peer.rpc.tasks import Tasks
from peercached.proto import peer_pb2 as pb
from peercached.removals.ledger import Told

# Least seconds between two questions to a member that has not told all or does not answer.
AGAIN_S = 0.05


@dataclass(slots=True)
class _Statement:
    asked_at: float
    task: asyncio.Task[Told | str]


class ToldByAll:
    """Use it on the event loop's thread."""

    def __init__(self, placement: Placement, member: Removals, calls: RemovalCalls) -> None:
        self._placement = placement
        self._member = member
        self._calls = calls
        self._statements: dict[int, _Statement] = {}  # by incarnation
        self._tasks = Tasks()

    async def by(self, node: Node, since: float, view: int) -> Told | str:
        """Finds the owners that know all that `node` had removed at `since` (monotonic seconds).
        They may be fewer than the members of `view`. A text instead says why there is no answer."""
        incarnation = node.address.incarnation
        last = self._statements.get(incarnation)
        if last is None or not await _is_good(last, since, view):
            newer = self._statements.get(incarnation)
            if newer is None or newer is last:
                newer = _Statement(time.monotonic(), self._tasks.spawn(self._ask(node)))
                self._statements[incarnation] = newer
            last = newer
        return await asyncio.shield(last.task)

    async def _ask(self, node: Node) -> Told | str:
        if node is self._placement.own:
            return await self._member.tell_followers()
        reply: pb.RemoveReply | str = await self._calls.call(node, "Remove", pb.RemoveRequest())
        if isinstance(reply, str):
            return reply
        return malformed(reply) or Told(reply.view_number, list(reply.untold))

    def keep_only(self, incarnations: Collection[int]) -> None:
        """Forgets nodes that are no longer members."""
        for gone in self._statements.keys() - set(incarnations):
            del self._statements[gone]

    async def stop(self) -> None:
        await self._tasks.stop()


async def _is_good(statement: _Statement, since: float, view: int) -> bool:
    task = statement.task
    await asyncio.wait([task])
    if statement.asked_at < since or task.cancelled() or task.exception() is not None:
        return False
    if time.monotonic() < statement.asked_at + AGAIN_S:
        return True
    told = task.result()
    return not isinstance(told, str) and not told.untold and told.view >= view
