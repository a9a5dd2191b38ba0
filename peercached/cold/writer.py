"""Makes objects of pages that are about to leave memory and disk, and that were read often enough.

A few objects at a time are in memory, each until its manifest is written. A set never waits for
them: pages that are evicted before their turn are not written. Also a node that may have missed
removals writes: its pages are void then, by the generations that they were born in (voids.py).

An object has the lowest of the generations that its pages were born in. So it is never taken for
newer than one of its pages (voids.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from peercached.cold import manifests
from peercached.cold.format import (
    NO_SEAL,
    Index,
    log_path,
    object_path,
    split,
    trailer_of,
)
from peercached.cold.manifests import Manifests
from peercached.cold.requests import WRITERS, Requests, StoreError
from peercached.cold.sealing import NoSeal
from peercached.cold.voids import Voids
from peercached.directory.layout import DIGEST_BYTES
from peercached.timeout import within

if TYPE_CHECKING:
    from peercached._native import Engine

T = TypeVar("T")
P = ParamSpec("P")

# An object is written when so many bytes of one namespace are about to leave; of a small pool less.
OBJECT_BYTES = 8 << 20
OBJECT_BYTES_MAX = 16 << 20
POOL_SHARE = 16
# It looks so far ahead, as a share of the pool.
AHEAD_SHARE = 8
# Smaller objects are written when pages have waited for so long.
LINGER_S = 5.0
# More than cold_size, while the sweeper deletes old objects.
SIZE_SLACK = 1 / 16
# Pages that were void in the store are looked at again after so long.
VOID_S = 60.0


class Writer:
    """On the event loop's thread. `size_max`: the key cold_size; `uses_min`: cold_after_uses."""

    def __init__(
        self,
        engine: Engine,
        requests: Requests,
        voids: Voids,
        known: Manifests,
        pool_bytes: int,
        size_max: int,
        uses_min: int,
        seal: NoSeal = NO_SEAL,
    ) -> None:
        self._engine = engine
        self._seal = seal
        self._requests = requests
        self._voids = voids
        self._known = known
        self._object_bytes = min(OBJECT_BYTES, pool_bytes // POOL_SHARE)
        self._ahead_bytes = pool_bytes // AHEAD_SHARE
        self._size_max = size_max
        self._uses_min = uses_min
        self._waits_since: float | None = None
        self._puts: dict[asyncio.Task[None], list[bytes]] = {}  # objects under way, their pages
        self._calls: set[asyncio.Future[object]] = set()  # of the data plane, under way
        self._void: set[bytes] = set()
        self._void_since = 0.0
        self.pages = self.bytes = self.objects = self.same = 0

    @property
    def is_full(self) -> bool:
        return self._known.bytes >= self._size_max * (1 + SIZE_SLACK)

    @property
    def _may_write(self) -> bool:
        return not self.why_not

    @property
    def why_not(self) -> str:
        """Why nothing is written now; empty if it is."""
        if not self._voids.has_looked:  # floors are not known
            return "the store has not answered yet"
        if self.is_full:
            return "the store has cold_size"
        return "the store failed a moment ago" if self._requests.writes_rest else ""

    async def write(self) -> bool:
        """Begins to write one object if there are pages for it. Returns whether it did. StoreError
        if the store did not take it, or one before it."""
        await self._finish()
        if not self._may_write:
            return False
        found = await self._call(
            self._engine.leaving_next,
            self._ahead_bytes,
            self._uses_min,
            OBJECT_BYTES_MAX,
            self._left_out(),
        )
        waiting = [
            (size, namespace_id, epoch, digests)
            for namespace_id, epoch, some, size in found
            if (digests := self._not_removed(namespace_id, epoch, some))
        ]
        if not waiting:
            self._waits_since = None
            return False
        size, namespace_id, epoch, digests = max(waiting)
        now = time.monotonic()
        self._waits_since = self._waits_since or now
        if size < self._object_bytes and now - self._waits_since < LINGER_S:
            return False
        self._waits_since = None
        made = await self._make(namespace_id, epoch, digests)
        if made is None:
            return False
        self._puts[asyncio.ensure_future(self._put(*made))] = made[0].digests
        return True

    async def write_lost(self, disk_stays: bool, seconds: float) -> tuple[int, int]:
        """The process ends: writes pages of the pool that are lost then, the most recently used
        first, for that time at most. Returns how many are in the store now, and their bytes.
        `disk_stays`: pages on the disk are not lost."""
        until = time.monotonic() + seconds
        if not self._voids.has_looked:
            with contextlib.suppress(StoreError, asyncio.TimeoutError):
                await within(seconds, self._voids.fresh())
        if not self._may_write:
            return 0, 0
        pages, size_bytes = self.pages, self.bytes
        found = await self._call(
            self._engine.leaving_at_end, self._uses_min, disk_stays, OBJECT_BYTES
        )
        parts = iter(
            [(ns, epoch, self._not_removed(ns, epoch, some)) for ns, epoch, some, _ in found]
        )
        workers = [asyncio.ensure_future(self._write_each(parts)) for _ in range(WRITERS)]
        # Only a complete object gets a manifest, so one that is cut off here is nowhere.
        await asyncio.wait(workers, timeout=max(until - time.monotonic(), 0.0))
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        return self.pages - pages, self.bytes - size_bytes

    async def stop(self) -> None:
        """Returns when no call of the data plane is under way."""
        for task in self._puts:
            task.cancel()
        await asyncio.gather(*self._puts, *self._calls, return_exceptions=True)

    async def _write_each(self, parts: Iterator[tuple[bytes, int, bytes]]) -> None:
        for part in parts:
            try:
                if self._may_write and (made := await self._make(*part)) is not None:
                    await self._put(*made)
            except StoreError:
                return

    def _left_out(self) -> bytes:
        """Pages that are under way, or void for a while."""
        if time.monotonic() - self._void_since > VOID_S:
            self._void.clear()
            self._void_since = time.monotonic()
        return b"".join(itertools.chain(self._void, *self._puts.values()))

    def _not_removed(self, namespace_id: bytes, epoch: int, digests: bytes) -> bytes:
        """While a record has a page, it waits, also if it has been set anew."""
        each = (digests[at : at + DIGEST_BYTES] for at in range(0, len(digests), DIGEST_BYTES))
        is_removed = self._voids.is_removed
        return b"".join(one for one in each if not is_removed(one, namespace_id, epoch))

    async def _make(
        self, namespace_id: bytes, epoch: int, digests: bytes
    ) -> tuple[Index, bytes, bytes, bytes] | None:
        """(index, name, index as it is stored, whole object); None if there is nothing to write."""
        entries, payloads, packed_born = await self._call(
            self._engine.copy_pages,
            digests,
            OBJECT_BYTES_MAX,
            self._seal.of_pages(namespace_id, epoch),
        )
        pages = list(zip(split(entries), memoryview(packed_born).cast("I"), strict=True))
        live = [
            (entry, born)
            for entry, born in pages
            if not self._voids.is_void(entry[:DIGEST_BYTES], namespace_id, epoch, born)
        ]
        if len(live) < len(pages):
            self._void |= {entry[:DIGEST_BYTES] for entry, _ in set(pages) - set(live)}
        if not live:
            return None
        # Pages of a pool file or a disk may be older than this store, and its counter lower.
        generation = min([self._voids.generation, *(born for _, born in live)])
        entries = b"".join(entry for entry, _ in live)
        index = Index(namespace_id, epoch, len(payloads), entries, generation)
        name, packed = index.sealed(self._seal)
        return index, name, packed, payloads + packed + trailer_of(packed)

    async def _finish(self) -> None:
        """Waits until one more object may be in memory. Raises what those that are done raised."""
        if len(self._puts) >= WRITERS:
            await asyncio.wait(self._puts, return_when=asyncio.FIRST_COMPLETED)
        for task in [task for task in self._puts if task.done()]:
            del self._puts[task]
            task.result()

    async def _put(self, index: Index, name: bytes, packed: bytes, body: bytes) -> None:
        path = object_path(index.namespace_id, index.epoch, name)
        is_new = await self._requests.put(path, body)
        # Only now can it be found. Without its manifest an object is nowhere.
        time_ms = time.time_ns() // 1_000_000
        manifest = log_path(manifests.FOLDER, time_ms, name)
        await self._requests.put(manifest, packed)
        self._known.take(manifest, name, index)
        self.objects += 1
        self.same += 0 if is_new else 1
        self.pages += len(index.each)
        self.bytes += index.payload_bytes

    async def _call(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """In a thread. Goes on by itself if nobody waits for it any more, see stop()."""
        loop = asyncio.get_running_loop()
        under_way: asyncio.Future[T] = loop.run_in_executor(None, lambda: call(*args, **kwargs))
        self._calls.add(under_way)  # type: ignore[arg-type]
        under_way.add_done_callback(self._calls.discard)
        return await asyncio.shield(under_way)
