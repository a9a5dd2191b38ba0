"""Events for callers that read a stream of their own, such as gRPC's (docs/routers.md, "Events").

A caller that is too slow ends with Unable, which names the number to go on from.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any

from peercached.kv_events.shared_stream import SharedStream
from peercached.kv_events.stream import Batch
from peercached.peer.rpc.failures import Unable
from peercached.timeout import within

FOLLOWERS_MAX = 64
BATCHES_AT_ONCE = 32
# A follower that nobody wakes looks after so long whether the stream has ended.
LOOK_S = 1.0


class Followers:
    """On the event loop's thread; `woken` is for any. Make it while the loop runs."""

    def __init__(self, stream: SharedStream) -> None:
        self._stream = stream
        self._loop = asyncio.get_running_loop()
        self._news: set[asyncio.Event] = set()
        self._ended = False
        self.too_slow = 0

    def __len__(self) -> int:
        return len(self._news)

    def woken(self) -> None:
        """There are new batches."""
        if self._news:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        for news in self._news:
            news.set()

    def end(self) -> None:
        self._ended = True
        self._wake()

    async def follow(self, start: int) -> AsyncGenerator[Batch, None]:
        """The batches from `start` on, or first a snapshot. FromTheFuture, Unable."""
        if len(self._news) >= FOLLOWERS_MAX:
            raise Unable(f"{FOLLOWERS_MAX} callers follow the events already")
        news = asyncio.Event()
        self._news.add(news)
        try:
            batches = await self._on_a_thread(self._stream.replay, start)
            following = start
            while not self._ended:
                news.clear()
                some = await self._on_a_thread(self._stream.take, batches, BATCHES_AT_ONCE)
                for batch in some:
                    yield batch
                    following = batch.number + 1
                if some:
                    continue
                with contextlib.suppress(asyncio.TimeoutError):
                    await within(LOOK_S, news.wait())
                batches = await self._on_a_thread(self._stream.follow, following)
                if batches is None:
                    self.too_slow += 1
                    raise Unable(
                        f"events from number {following} on are not kept any more, because they "
                        f"were read too slowly: call again with start = {following}"
                    )
        finally:
            self._news.discard(news)

    async def _on_a_thread(self, call: Any, *arguments: Any) -> Any:
        """The stream's lock is held while events are gathered."""
        return await self._loop.run_in_executor(None, call, *arguments)
