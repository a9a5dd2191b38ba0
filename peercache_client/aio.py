"""The client for asyncio."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from peercache_client import spans
from peercache_client._ipc import Cancel, part_of
from peercache_client.client import DEFAULT_STAGING_BYTES, DEFAULT_TIMEOUT_S, Client
from peercache_client.not_copied import NotCopied
from peercache_client.region import Region
from peercache_client.session import SILENCE_TIMEOUT_S

P = ParamSpec("P")
T = TypeVar("T")


def _on_a_thread(
    method: Callable[Concatenate[Client, P], T],
) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]:
    """The method of `Client` as a coroutine, with the same arguments."""

    @wraps(method)
    async def call(self: AsyncClient, /, *arguments: P.args, **named: P.kwargs) -> T:
        options: dict[str, Any] = dict(named)
        cancel = None
        if options.get("wait_s"):
            whole = options.get("cancel")
            if whole is None or isinstance(whole, Cancel):
                # One of its own: the other calls with the caller's Cancel go on.
                cancel = options["cancel"] = part_of(whole) if whole else Cancel()
        started: Callable[..., T] = method
        return await self._run(partial(started, self._client, *arguments, **options), cancel)

    return call


class AsyncClient(NotCopied):
    """`Client` with coroutines. It uses at most `threads` threads, each with its own connection.
    Calls that wait for pages use as many others.

    The methods take the same arguments as those of `Client`, and return the same results.
    Cancelling a running call takes effect only when the daemon has answered it. Until then the
    daemon may still write into the region. Only a wait for pages ends at once.
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
        # Keyed by process id, because a forked child has none of its parent's threads. Calls that
        # wait for pages have threads of their own, or others would wait for them.
        self._pools: dict[tuple[int, bool], ThreadPoolExecutor] = {
            (os.getpid(), False): self._new_pool()
        }

    def _new_pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self._threads, thread_name_prefix="peercache-client")

    def _start(self, call: Callable[[], T], waits: bool) -> Future[T]:
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

        pool = self._pools.get((os.getpid(), waits))
        if pool is None:
            pool = self._pools.setdefault((os.getpid(), waits), self._new_pool())
        try:
            pool.submit(work)
        except RuntimeError:  # no thread can be started, the pool is closed, or the program ends
            work()
        return done

    async def _run(self, call: Callable[[], T], cancel: Cancel | None = None) -> T:
        started = self._start(spans.carried(call), cancel is not None)
        result = asyncio.wrap_future(started)
        try:
            return await asyncio.shield(result)
        except asyncio.CancelledError:
            if not started.cancel():
                if cancel is not None:
                    cancel.cancel()
                while not result.done():
                    try:
                        await asyncio.wait([result])
                    except asyncio.CancelledError:
                        continue  # a second cancellation does not end the transfer
                if not result.cancelled():
                    result.exception()  # marks it as retrieved, so that asyncio logs no warning
            raise

    alloc = _on_a_thread(Client.alloc)
    register = _on_a_thread(Client.register)
    register_memory = _on_a_thread(Client.register_memory)
    register_device = _on_a_thread(Client.register_device)

    def locate(self, address: int, size: int) -> tuple[Region, int] | None:
        return self._client.locate(address, size)

    batch_set = _on_a_thread(Client.batch_set)
    batch_get = _on_a_thread(Client.batch_get)
    batch_set_device = _on_a_thread(Client.batch_set_device)
    batch_get_device = _on_a_thread(Client.batch_get_device)
    batch_set_buffers = _on_a_thread(Client.batch_set_buffers)
    batch_get_buffers = _on_a_thread(Client.batch_get_buffers)
    set = _on_a_thread(Client.set)
    get = _on_a_thread(Client.get)
    batch_exists = _on_a_thread(Client.batch_exists)
    contains = _on_a_thread(Client.contains)
    forecast = _on_a_thread(Client.forecast)
    presence = _on_a_thread(Client.presence)
    lengths = _on_a_thread(Client.lengths)
    remove = _on_a_thread(Client.remove)
    pin = _on_a_thread(Client.pin)
    unpin = _on_a_thread(Client.unpin)
    hint = _on_a_thread(Client.hint)
    touch = _on_a_thread(Client.touch)
    clear = _on_a_thread(Client.clear)
    stats = _on_a_thread(Client.stats)
    ping = _on_a_thread(Client.ping)

    @property
    def last_error(self) -> str:
        return self._client.last_error

    async def close(self) -> None:
        """Disconnects after the running calls. Waits for pages end. Later calls return misses."""
        self._client._stop()
        await self._run(self._client.close)
        for (pid, _), pool in list(self._pools.items()):
            if pid == os.getpid():
                pool.shutdown(wait=False)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
