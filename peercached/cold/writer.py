"""Makes objects of pages that the pool is about to evict and that were read often enough.

A few objects at a time are in memory, each until its manifest is written. A set never waits for
them: pages that are evicted before their turn are not written.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from typing import TYPE_CHECKING

from peercached.cold import manifests
from peercached.cold.format import (
    Index,
    log_path,
    name_of,
    object_path,
    trailer_of,
)
from peercached.cold.manifests import Manifests
from peercached.cold.requests import WRITERS, Requests
from peercached.cold.voids import Voids
from peercached.directory.layout import DIGEST_BYTES

if TYPE_CHECKING:
    from peercached._native import Engine

# An object is written when so many bytes of one namespace are about to leave; of a small pool less.
OBJECT_BYTES = 8 << 20
OBJECT_BYTES_MAX = 16 << 20
POOL_SHARE = 16
# It looks so far ahead, as a share of the pool.
AHEAD_SHARE = 8
# Smaller objects are written when pages have waited for so long.
LINGER_S = 5.0


class Writer:
    """On the event loop's thread. `size_max`: the key cold_size; `reads_min`: cold_after_uses."""

    def __init__(
        self,
        engine: Engine,
        requests: Requests,
        voids: Voids,
        known: Manifests,
        pool_bytes: int,
        size_max: int,
        reads_min: int,
    ) -> None:
        self._engine = engine
        self._requests = requests
        self._voids = voids
        self._known = known
        self._object_bytes = min(OBJECT_BYTES, pool_bytes // POOL_SHARE)
        self._ahead_bytes = pool_bytes // AHEAD_SHARE
        self._size_max = size_max
        self._reads_min = reads_min
        self._waits_since: float | None = None
        self._puts: dict[asyncio.Task[None], list[bytes]] = {}  # objects under way, their pages
        self.pages = self.bytes = self.objects = self.same = 0

    @property
    def is_full(self) -> bool:
        return self._known.bytes >= self._size_max

    async def stop(self) -> None:
        for task in self._puts:
            task.cancel()
        await asyncio.gather(*self._puts, return_exceptions=True)

    async def write(self) -> bool:
        """Begins to write one object if there are pages for it. Returns whether it did. StoreError
        if the store did not take it, or one before it."""
        await self._finish()
        if self.is_full or self._requests.rests:
            return False
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(
            None, self._engine.store_candidates, self._ahead_bytes, self._reads_min
        )
        by_epoch: dict[tuple[bytes, int], list[bytes]] = defaultdict(list)
        bytes_of: dict[tuple[bytes, int], int] = defaultdict(int)
        for namespace_id, epoch, digests, size in found:
            # A removed page stays out for good, also when it has been set anew.
            fresh = self._not_stored(digests)
            count = len(digests) // DIGEST_BYTES
            by_epoch[namespace_id, epoch] += fresh
            bytes_of[namespace_id, epoch] += size * len(fresh) // count
        most = max(by_epoch, key=lambda key: bytes_of[key], default=None)
        if most is None or not by_epoch[most]:
            self._waits_since = None
            return False
        now = time.monotonic()
        self._waits_since = self._waits_since or now
        if bytes_of[most] < self._object_bytes and now - self._waits_since < LINGER_S:
            return False
        self._waits_since = None
        return await self._write(*most, b"".join(by_epoch[most]))

    def _not_stored(self, digests: bytes) -> list[bytes]:
        stored = self._engine.stored_digests(digests)
        there = {stored[at : at + DIGEST_BYTES] for at in range(0, len(stored), DIGEST_BYTES)}
        there |= self._voids.digests
        there.update(*self._puts.values())
        each = (digests[at : at + DIGEST_BYTES] for at in range(0, len(digests), DIGEST_BYTES))
        return [digest for digest in each if digest not in there]

    async def _write(self, namespace_id: bytes, epoch: int, digests: bytes) -> bool:
        loop = asyncio.get_running_loop()
        entries, payloads = await loop.run_in_executor(
            None, self._engine.copy_pages, digests, OBJECT_BYTES_MAX
        )
        if not entries:
            return False
        index = Index(namespace_id, epoch, len(payloads), entries)
        packed = index.pack()
        body = payloads + packed + trailer_of(packed)
        self._puts[asyncio.ensure_future(self._put(index, packed, body))] = index.digests
        return True

    async def _finish(self) -> None:
        """Waits until one more object may be in memory. Raises what those that are done raised."""
        if len(self._puts) >= WRITERS:
            await asyncio.wait(self._puts, return_when=asyncio.FIRST_COMPLETED)
        for task in [task for task in self._puts if task.done()]:
            del self._puts[task]
            task.result()

    async def _put(self, index: Index, packed: bytes, body: bytes) -> None:
        name = name_of(packed)
        path = object_path(index.namespace_id, index.epoch, name)
        is_new = await self._requests.put(path, body)
        # Only now can it be found. Without its manifest an object is nowhere.
        time_ms = time.time_ns() // 1_000_000
        await self._requests.put(log_path(manifests.FOLDER, time_ms, name), packed)
        self._known.take(name, index)
        self.objects += 1
        self.same += 0 if is_new else 1
        self.pages += len(index.each)
        self.bytes += index.payload_bytes
