"""A bounded queue that serves namespaces in turn, so that a flood of one delays no other.

Pure, except that take() waits.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from typing import Generic, TypeVar

WORKS_MAX = 256
WORKS_PER_NAMESPACE_MAX = 32

Work = TypeVar("Work")


class Turns(Generic[Work]):
    """On the event loop's thread."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, deque[Work]] = OrderedDict()  # the next one's turn in front
        self._count = 0
        self._any = asyncio.Event()

    def __len__(self) -> int:
        return self._count

    def why_full(self, namespace: str) -> str:
        """Why one more of this namespace is refused, for people; empty: there is room."""
        own = len(self._waiting.get(namespace, ()))
        if own >= WORKS_PER_NAMESPACE_MAX:
            return (
                f"{own} actions of this namespace wait already: {WORKS_PER_NAMESPACE_MAX} are the "
                "limit, send fewer at once"
            )
        if self._count >= WORKS_MAX:
            return f"{self._count} actions wait already: {WORKS_MAX} are the limit of a node"
        return ""

    def add(self, namespace: str, work: Work) -> None:
        """Ask why_full() before."""
        self._waiting.setdefault(namespace, deque()).append(work)
        self._count += 1
        self._any.set()

    async def take(self) -> Work:
        """The next namespace's oldest work."""
        while not self._count:
            self._any.clear()
            await self._any.wait()
        namespace, works = next(iter(self._waiting.items()))
        work = works.popleft()
        self._count -= 1
        if works:
            self._waiting.move_to_end(namespace)
        else:
            del self._waiting[namespace]
        return work
