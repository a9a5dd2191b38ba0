"""Whom each member has told of what it has removed: one question for all removals that wait for it.

An owner that is in the view again, or that a holder did not reach, may still name the holder for
pages that are removed. So a removal is not sure before each member has told all members of the
newest view. What a member answers is about all that it had removed until it was asked.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Coroutine
from dataclasses import dataclass
from typing import Any

from peercached.directory.placement import Node
from peercached.peer.rpc.tasks import Tasks
from peercached.removals.ledger import Told

# A member that has not told all yet, or does not answer, is asked no more often.
AGAIN_S = 0.05


@dataclass(slots=True)
class _Statement:
    asked_at: float
    task: asyncio.Task[Told | str]


class ToldByAll:
    """On the event loop's thread. `ask`: the member's answer of now, or why there is none."""

    def __init__(self, ask: Callable[[Node], Coroutine[Any, Any, Told | str]]) -> None:
        self._ask = ask
        self._statements: dict[int, _Statement] = {}  # by incarnation
        self._tasks = Tasks()

    async def by(self, node: Node, since: float, view: int) -> Told | str:
        """Whom it has told of all that it had removed at `since` (monotonic seconds). That may be
        fewer than the members of the view. A text says why there is no answer."""
        incarnation = node.address.incarnation
        last = self._statements.get(incarnation)
        if last is None or not await _is_good(last, since, view):
            newer = self._statements.get(incarnation)
            if newer is None or newer is last:
                newer = _Statement(time.monotonic(), self._tasks.spawn(self._ask(node)))
                self._statements[incarnation] = newer
            last = newer
        return await asyncio.shield(last.task)

    def keep_only(self, incarnations: Collection[int]) -> None:
        """The others are no members any more."""
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
