"""Makes objects of pages that the pool is about to evict and that were read often enough.

One object at a time is in memory. A set never waits for it: pages that are evicted before their
turn are not written.
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
from peercached.cold.requests import Requests
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
        self.pages = self.bytes = self.objects = self.same = 0

    @property
    def is_full(self) -> bool:
        return self._known.bytes >= self._size_max

    async def write(self) -> bool:
        """Writes one object if there are pages for it. Returns whether it did. StoreError if the
        store does not take it."""
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
        name = name_of(packed)
        body = payloads + packed + trailer_of(packed)
        del payloads
        path = object_path(namespace_id, epoch, name)
        is_new = await self._requests.put(path, body)
        del body
        # Only now can it be found. Without its manifest an object is nowhere.
        time_ms = time.time_ns() // 1_000_000
        await self._requests.put(log_path(manifests.FOLDER, time_ms, name), packed)
        self._known.take(name, index)
        self.objects += 1
        self.same += 0 if is_new else 1
        self.pages += len(index.each)
        self.bytes += index.payload_bytes
        return True
