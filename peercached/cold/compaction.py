"""Copies the pages of a namespace that are not void into a new generation, and voids the rest.

1. Raise the generation of the store by one, so that all records of now are of a lower one.
2. Look at all records. Let M be the highest generation, known before that look. The copies get
   M + 1.
3. For each object write a manifest of M + 1 with the pages that are not void. If enough of its
   bytes are dead, they go into a new object. If not, they stay where they are: a manifest is cheap.
4. Raise the floor of the namespace to M + 1. The sweeper then deletes what is below, and the
   records up to generation M - 1.

Why no removed page comes back: a removal that step 2 has seen is not copied. Another one was put
after that look began. So its remover has listed the generation M or a later one, and voids its
pages up to M + 1. Two compactions at once both rely on this, each for its own copies. If one ends
late, its floor is lower than the other's, and its copies are void.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from peercached.cold import manifests
from peercached.cold.format import (
    ALIGN_BYTES,
    ENTRY,
    INDEX_BYTES_MAX,
    NO_SEAL,
    OWN_HOME,
    Index,
    Mangled,
    Record,
    log_path,
    object_path,
    parse_index,
    split,
    trailer_of,
)
from peercached.cold.manifests import Manifests, Stored
from peercached.cold.requests import Requests, StoreError
from peercached.cold.sealing import NoSeal
from peercached.cold.voids import ANY_NAMESPACE, Voids

# An object is written anew if so much of it is dead.
REWRITE_SHARE = 0.3
# Between two looks at the lease, while it waits.
LOOK_S = 1.0

GoOn = Callable[[], Awaitable[None]]


class Compaction:
    """On the event loop's thread. `seen_s`: after that time all nodes have listed a manifest."""

    def __init__(
        self,
        requests: Requests,
        voids: Voids,
        known: Manifests,
        seen_s: float,
        seal: NoSeal = NO_SEAL,
    ) -> None:
        self._requests = requests
        self._voids = voids
        self._known = known
        self._seen_s = seen_s
        self._seal = seal
        self.compactions = self.rewritten_objects = self.kept_objects = self.dropped_objects = 0

    async def run(self, namespace_id: bytes, go_on: GoOn) -> None:
        """`go_on` is asked before each step, and raises if this node must stop. StoreError."""
        voids = self._voids
        await voids.put(Record(ANY_NAMESPACE, 0, generation=voids.generation + 1))
        await self._known.read(is_complete=True)
        generation = await voids.look_anew() + 1
        epoch = max(
            [voids.floors.get(namespace_id, (0, 0))[0]]
            + [
                one.epoch
                for one in self._known.objects.values()
                if one.namespace_id == namespace_id
            ]
        )
        done: set[bytes] = set()
        # Once more for those that were written meanwhile.
        for pause_s in (0.0, self._seen_s):
            await self._wait(pause_s, go_on)
            await self._known.read(is_complete=False)
            for name, one in list(self._known.objects.items()):
                is_ours = one.namespace_id == namespace_id and one.epoch == epoch
                if not is_ours or one.generation >= generation or name in done:
                    continue
                await go_on()
                await self._copy(name, one, generation)
                done.add(name)
        await go_on()
        await voids.put(Record(namespace_id, epoch, generation=generation))
        self.compactions += 1

    @staticmethod
    async def _wait(pause_s: float, go_on: GoOn) -> None:
        until = time.monotonic() + pause_s
        while (left_s := until - time.monotonic()) > 0:
            await go_on()
            await asyncio.sleep(min(left_s, LOOK_S))

    async def _copy(self, name: bytes, one: Stored, generation: int) -> None:
        try:
            packed = await self._requests.get(one.path, INDEX_BYTES_MAX, spare=True)
            index = parse_index(packed, name, self._seal)
            entries = self._known.live(name, index)
            if not entries:
                self.dropped_objects += 1
                return
            live_bytes = sum(length for _, _, _, length in ENTRY.iter_unpack(entries))
            if live_bytes >= (1 - REWRITE_SHARE) * index.payload_bytes:
                copy = Index(
                    one.namespace_id,
                    one.epoch,
                    index.payload_bytes,
                    entries,
                    generation,
                    one.made_ms,
                    one.home,
                )
                self.kept_objects += 1
            else:
                copy = await self._rewritten(one, entries, generation)
                self.rewritten_objects += 1
        except Mangled:
            return
        except StoreError as error:
            if error.kind == "missing":
                return
            raise
        name, packed = copy.sealed(self._seal)
        path = log_path(manifests.FOLDER, time.time_ns() // 1_000_000, name)
        await self._requests.put(path, packed, spare=True)
        self._known.take(path, name, copy)

    async def _rewritten(self, one: Stored, entries: bytes, generation: int) -> Index:
        """Puts these pages into an object of their own, and returns its index."""
        payloads, entries = await self._copied(one, split(entries))
        made = Index(
            one.namespace_id,
            one.epoch,
            len(payloads),
            entries,
            generation,
            one.made_ms,
            OWN_HOME,
        )
        name, packed = made.sealed(self._seal)
        path = object_path(one.namespace_id, one.epoch, name)
        await self._requests.put(path, payloads + packed + trailer_of(packed), spare=True)
        return made

    async def _copied(self, one: Stored, entries: list[bytes]) -> tuple[bytes, bytes]:
        """Reads these pages: (payloads, entries with their new places). Sealed ones stay so."""
        whole = memoryview(
            await self._requests.get_range(one.home_path, 0, one.payload_bytes, spare=True)
        )
        payloads = bytearray()
        placed = []
        for entry in entries:
            digest, checksum, offset, length = ENTRY.unpack(entry)
            placed.append(ENTRY.pack(digest, checksum, len(payloads), length))
            payloads += whole[offset : offset + length + self._seal.extra_bytes]
            payloads += bytes(-len(payloads) % ALIGN_BYTES)
        return bytes(payloads), b"".join(placed)
