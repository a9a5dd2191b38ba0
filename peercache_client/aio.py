"""The client for asyncio."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from peercache_client import spans
from peercache_client.batch import Lengths
from peercache_client.client import DEFAULT_STAGING_BYTES, DEFAULT_TIMEOUT_S, Client
from peercache_client.not_copied import NotCopied
from peercache_client.region import Region
from peercache_client.session import SILENCE_TIMEOUT_S
from peercache_client.status import Status
from peercache_client.wire import Key

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

T = TypeVar("T")


class AsyncClient(NotCopied):
    """`Client` with coroutines. It uses at most `threads` threads, each with its own connection.

    The methods take the same arguments as those of `Client`, and return the same results.
    Cancelling a running call takes effect only when the daemon has answered it. Until then the
    daemon may still write into the region.
    """

    def __init__(
        self,
        socket_path: str | os.PathLike[str] | None = None,
        namespace: str = "default",
        *,
        name: str = "",
        timeout_s: float = DEFAULT_TIMEOUT_S,
        staging_bytes: int = DEFAULT_STAGING_BYTES,
        silence_timeout_s: float | None = SILENCE_TIMEOUT_S,
        threads: int = 4,
    ) -> None:
        self._client = Client(
            socket_path,
            namespace,
            name=name,
            timeout_s=timeout_s,
            staging_bytes=staging_bytes,
            silence_timeout_s=silence_timeout_s,
        )
        self._threads = threads
        # Keyed by process id, because a forked child has none of its parent's threads.
        self._pools: dict[int, ThreadPoolExecutor] = {os.getpid(): self._new_pool()}

    def _new_pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self._threads, thread_name_prefix="peercache-client")

    def _start(self, call: Callable[[], T]) -> Future[T]:
        """Runs the call once, on a pool thread or inline if none is available; returns its
        future."""
        done: Future[T] = Future()
        turn = [done]

        def work() -> None:
            # submit() may raise after queueing the call. `turn` prevents a second run.
            try:
                mine = turn.pop()
            except IndexError:
                return
            if not mine.set_running_or_notify_cancel():
                return
            try:
                mine.set_result(call())
            except BaseException as error:
                mine.set_exception(error)

        pool = self._pools.get(os.getpid())
        if pool is None:
            pool = self._pools.setdefault(os.getpid(), self._new_pool())
        try:
            pool.submit(work)
        except RuntimeError:  # no thread can be started, the pool is closed, or the program ends
            work()
        return done

    async def _run(self, call: Callable[[], T]) -> T:
        started = self._start(spans.carried(call))
        result = asyncio.wrap_future(started)
        try:
            return await asyncio.shield(result)
        except asyncio.CancelledError:
            if not started.cancel():
                while not result.done():
                    try:
                        await asyncio.wait([result])
                    except asyncio.CancelledError:
                        continue  # a second cancellation does not end the transfer
                if not result.cancelled():
                    result.exception()  # marks it as retrieved, so that asyncio logs no warning
            raise

    async def alloc(self, size: int) -> Region:
        return await self._run(lambda: self._client.alloc(size))

    async def register(self, source: int | ReadableBuffer) -> Region:
        return await self._run(lambda: self._client.register(source))

    async def register_memory(self, address: int, size: int) -> Region:
        return await self._run(lambda: self._client.register_memory(address, size))

    def locate(self, address: int, size: int) -> tuple[Region, int] | None:
        return self._client.locate(address, size)

    async def batch_set(
        self,
        keys: Sequence[Key],
        region: Region | Sequence[Region],
        offsets: Sequence[int],
        lengths: Lengths,
        *,
        parent: Key | None = None,
        timeout_s: float | None = None,
    ) -> list[Status]:
        return await self._run(
            lambda: self._client.batch_set(
                keys, region, offsets, lengths, parent=parent, timeout_s=timeout_s
            )
        )

    async def batch_get(
        self,
        keys: Sequence[Key],
        region: Region | Sequence[Region],
        offsets: Sequence[int],
        lengths: Lengths,
        *,
        parent: Key | None = None,
        timeout_s: float | None = None,
        traceparent: str | None = None,
    ) -> list[Status]:
        return await self._run(
            lambda: self._client.batch_get(
                keys,
                region,
                offsets,
                lengths,
                parent=parent,
                timeout_s=timeout_s,
                traceparent=traceparent,
            )
        )

    async def batch_set_buffers(
        self,
        keys: Sequence[Key],
        buffers: Sequence[ReadableBuffer],
        *,
        parent: Key | None = None,
        timeout_s: float | None = None,
    ) -> list[Status]:
        return await self._run(
            lambda: self._client.batch_set_buffers(
                keys, buffers, parent=parent, timeout_s=timeout_s
            )
        )

    async def batch_get_buffers(
        self,
        keys: Sequence[Key],
        buffers: Sequence[WriteableBuffer],
        *,
        parent: Key | None = None,
        timeout_s: float | None = None,
        traceparent: str | None = None,
    ) -> list[Status]:
        return await self._run(
            lambda: self._client.batch_get_buffers(
                keys, buffers, parent=parent, timeout_s=timeout_s, traceparent=traceparent
            )
        )

    async def set(
        self,
        key: Key,
        data: ReadableBuffer,
        *,
        parent: Key | None = None,
        timeout_s: float | None = None,
    ) -> Status:
        return await self._run(
            lambda: self._client.set(key, data, parent=parent, timeout_s=timeout_s)
        )

    async def get(
        self,
        key: Key,
        length: int | None = None,
        *,
        timeout_s: float | None = None,
        traceparent: str | None = None,
    ) -> bytes | None:
        return await self._run(
            lambda: self._client.get(key, length, timeout_s=timeout_s, traceparent=traceparent)
        )

    async def batch_exists(
        self,
        keys: Sequence[Key],
        *,
        parent: Key | None = None,
        timeout_s: float | None = None,
        hold_s: float = 0.0,
        page_tokens: int = 0,
        page_keys: int = 1,
    ) -> int:
        return await self._run(
            lambda: self._client.batch_exists(
                keys,
                parent=parent,
                timeout_s=timeout_s,
                hold_s=hold_s,
                page_tokens=page_tokens,
                page_keys=page_keys,
            )
        )

    async def contains(
        self,
        keys: Sequence[Key],
        *,
        parent: Key | None = None,
        timeout_s: float | None = None,
        hold_s: float = 0.0,
        page_tokens: int = 0,
        page_keys: int = 1,
    ) -> list[bool]:
        return await self._run(
            lambda: self._client.contains(
                keys,
                parent=parent,
                timeout_s=timeout_s,
                hold_s=hold_s,
                page_tokens=page_tokens,
                page_keys=page_keys,
            )
        )

    async def lengths(
        self, keys: Sequence[Key], *, parent: Key | None = None, timeout_s: float | None = None
    ) -> list[int]:
        return await self._run(
            lambda: self._client.lengths(keys, parent=parent, timeout_s=timeout_s)
        )

    async def remove(self, keys: Sequence[Key], *, timeout_s: float | None = None) -> list[Status]:
        return await self._run(lambda: self._client.remove(keys, timeout_s=timeout_s))

    async def pin(
        self,
        keys: Sequence[Key],
        for_s: float,
        *,
        prefix: bool = False,
        here: bool = False,
        timeout_s: float | None = None,
    ) -> list[Status]:
        return await self._run(
            lambda: self._client.pin(keys, for_s, prefix=prefix, here=here, timeout_s=timeout_s)
        )

    async def unpin(self, keys: Sequence[Key], *, timeout_s: float | None = None) -> list[Status]:
        return await self._run(lambda: self._client.unpin(keys, timeout_s=timeout_s))

    async def clear(self, *, timeout_s: float | None = None) -> bool:
        return await self._run(lambda: self._client.clear(timeout_s=timeout_s))

    async def stats(self, *, timeout_s: float | None = None) -> dict[str, Any]:
        return await self._run(lambda: self._client.stats(timeout_s=timeout_s))

    async def ping(self, *, timeout_s: float | None = None) -> bool:
        return await self._run(lambda: self._client.ping(timeout_s=timeout_s))

    @property
    def last_error(self) -> str:
        return self._client.last_error

    async def close(self) -> None:
        """Disconnects after the running calls. Later calls return misses."""
        await self._run(self._client.close)
        pool = self._pools.get(os.getpid())
        if pool is not None:
            pool.shutdown(wait=False)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
