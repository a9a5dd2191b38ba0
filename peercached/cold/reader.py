"""Brings pages of objects into the pool, for a get that waits or because `exists` told of them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from peercached.cold.format import ENTRY, NO_SEAL, object_path, split
from peercached.cold.requests import READERS, Requests, StoreError
from peercached.cold.sealing import NoSeal
from peercached.cold.voids import Voids
from peercached.directory.layout import DIGEST_BYTES

if TYPE_CHECKING:
    from peercached._native import Engine

log = logging.getLogger(__name__)

# Of one request. Pages with less between them than the gap come with it.
RANGE_BYTES = 8 << 20
GAP_BYTES = 64 << 10
# Requests that run or wait. Beyond that a page is a miss.
RANGES_MAX = 64
# Pages for which nobody waits take at most 1/WARM_SHARE of the pool at a time: the last ones must
# not evict the first.
WARM_SHARE = 4
# The copy into the pool.
LAND_MS = 1000
# Share of a reader's time that it waits; the rest is for the copy out of the pool.
SHARE = 0.9
# Threads that copy ranges into the pool, while others are read.
COPIERS = 2


@dataclass(frozen=True, slots=True)
class Range:
    """Pages of one object that one request reads."""

    name: bytes
    home: bytes
    namespace_id: bytes
    epoch: int
    generation: int
    start: int
    end: int
    entries: tuple[bytes, ...]
    ahead: bool = False  # nobody has asked for these
    behind: Range | None = None  # is read after this one, and ahead

    @property
    def digests(self) -> list[bytes]:
        return [entry[:DIGEST_BYTES] for entry in self.entries]

    @property
    def path(self) -> str:
        return object_path(self.namespace_id, self.epoch, self.home)


class Reader:
    """On the event loop's thread. `why_not`: why this node may use no page of the store now; empty
    if it may."""

    def __init__(
        self,
        engine: Engine,
        requests: Requests,
        voids: Voids,
        pool_bytes: int,
        why_not: Callable[[], str],
        seal: NoSeal = NO_SEAL,
    ) -> None:
        self._engine = engine
        self._seal = seal
        self._requests = requests
        self._voids = voids
        self._why_not = why_not
        self._bytes_max = pool_bytes // WARM_SHARE
        self._coming_bytes = 0
        self._coming: dict[bytes, asyncio.Task[None]] = {}  # by digest
        self._ahead: set[bytes] = set()  # of these digests, those that nobody had asked for
        self._tasks: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(READERS + COPIERS)
        self._copies = ThreadPoolExecutor(COPIERS, "cold-land")
        self.pages = self.bytes = 0  # that came into the pool
        self.void = self.late = self.corrupt = self.vanished = self.no_room = self.crowded = 0

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._copies.shutdown(wait=False, cancel_futures=True)

    async def fetch(self, digests: bytes, left_s: float) -> None:
        """Returns when all of these pages that can come are in the pool, or when the time is up.
        Pages on their way still come."""
        until = time.monotonic() + left_s * SHARE
        # These may find no room, because nobody had asked for them.
        ahead = b"".join(digest for digest in _digests(digests) if digest in self._ahead)
        for wanted in (digests, ahead):
            if tasks := self._begin(wanted):
                await asyncio.wait(tasks, timeout=max(until - time.monotonic(), 0.0))

    def warm(self, digests: bytes) -> None:
        """Brings these pages if there is room and time."""
        self._begin(digests, self._bytes_max)

    def _begin(self, digests: bytes, bytes_max: int | None = None) -> set[asyncio.Task[None]]:
        """Starts what is not on its way already, while less than `bytes_max` are."""
        if self._requests.rests or self._why_not():
            return set()
        tasks = set()
        missing = []
        for at in range(0, len(digests), DIGEST_BYTES):
            digest = digests[at : at + DIGEST_BYTES]
            if digest in self._coming:
                tasks.add(self._coming[digest])
            else:
                missing.append(digest)
        found = self._engine.stored_pages(b"".join(missing), RANGE_BYTES) if missing else []
        for part in _ranges(found, self._seal.extra_bytes):
            size = part.end - part.start
            is_crowded = bytes_max is not None and self._coming_bytes + size > bytes_max
            if is_crowded or len(self._tasks) >= RANGES_MAX:
                self.crowded += len(part.entries)
            else:
                tasks.add(self._start(part))
        return tasks

    def _start(self, part: Range) -> asyncio.Task[None]:
        task = asyncio.ensure_future(self._bring(part))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._coming_bytes += part.end - part.start
        self._coming |= dict.fromkeys(part.digests, task)
        if part.ahead:
            self._ahead.update(part.digests)
        return task

    def _start_behind(self, part: Range) -> None:
        """Does nothing if some of them are coming already: a get has asked for them meanwhile."""
        if self._coming.keys().isdisjoint(part.digests) and len(self._tasks) < RANGES_MAX:
            self._start(part)

    async def _bring(self, part: Range) -> None:
        try:
            async with self._slots:
                await self._read(part)
            if part.behind:
                self._start_behind(part.behind)
        except StoreError as error:
            if error.kind in ("missing", "cut"):
                self.vanished += len(part.entries)
                self._engine.drop_objects(part.name)
        except Exception:
            log.exception("pages of the object store could not be read")
        finally:
            self._coming_bytes -= part.end - part.start
            for digest in part.digests:
                self._coming.pop(digest, None)
                self._ahead.discard(digest)

    async def _look(self) -> None:
        with contextlib.suppress(StoreError):  # the reader asks once more
            await self._voids.fresh()

    async def _read(self, part: Range) -> None:
        # After a rest a listing is due, too: it shares the round trip.
        payloads, _ = await asyncio.gather(
            self._requests.get_range(part.path, part.start, part.end), self._look()
        )
        await self._land(part, payloads, await self._voids.fresh())

    async def _land(self, part: Range, payloads: Any, valid_until: float) -> None:
        entries = [
            entry
            for entry in part.entries
            if not self._voids.is_void(
                entry[:DIGEST_BYTES], part.namespace_id, part.epoch, part.generation
            )
        ]
        self.void += len(part.entries) - len(entries)
        if not entries or self._why_not():
            return
        # The data plane looks at the time once more when it commits the pages.
        taken, corrupt, why_not = await asyncio.get_running_loop().run_in_executor(
            self._copies,
            self._engine.land_pages,
            part.namespace_id,
            part.epoch,
            part.generation,
            b"".join(entries),
            part.start,
            payloads,
            valid_until,
            LAND_MS,
            part.ahead,
            self._seal.of_pages(part.namespace_id, part.epoch),
        )
        landed = set(_digests(taken))
        self.pages += len(landed)
        self.bytes += sum(ENTRY.unpack(e)[3] for e in entries if e[:DIGEST_BYTES] in landed)
        if corrupt:
            self.corrupt += len(corrupt) // DIGEST_BYTES
            self._engine.drop_stored(corrupt)
        left = len(entries) - len(landed) - len(corrupt) // DIGEST_BYTES
        if part.ahead:
            return
        if why_not:
            self.no_room += left
        elif time.monotonic() >= valid_until:
            self.late += left


def _ranges(
    objects: list[tuple[bytes, bytes, bytes, int, int, bytes, bytes]], extra_bytes: int = 0
) -> Iterator[Range]:
    """`objects`: as Engine.stored_pages() has them. `extra_bytes`: of the seal of a page."""
    for name, home, namespace_id, epoch, generation, packed, behind in objects:
        of = name, home, namespace_id, epoch, generation
        *others, last = _near(split(packed), extra_bytes)
        for entries in others:
            yield Range(*of, *_extent(entries, extra_bytes), entries)
        ahead = _near([*last, *split(behind)], extra_bytes)[0][len(last) :]
        then = Range(*of, *_extent(ahead, extra_bytes), ahead, ahead=True) if ahead else None
        yield Range(*of, *_extent(last, extra_bytes), last, behind=then)


def _near(entries: list[bytes], extra_bytes: int) -> list[tuple[bytes, ...]]:
    """Groups of entries, one for each request."""
    parts: list[list[bytes]] = []
    for entry in entries:
        start, end = _extent((entry,), extra_bytes)
        if parts:
            first, last = _extent(parts[-1], extra_bytes)
            if start - last <= GAP_BYTES and end - first <= RANGE_BYTES:
                parts[-1].append(entry)
                continue
        parts.append([entry])
    return [tuple(part) for part in parts]


def _extent(entries: Sequence[bytes], extra_bytes: int) -> tuple[int, int]:
    """The first byte, and the one behind the last."""
    _, _, offset, length = ENTRY.unpack(entries[-1])
    return ENTRY.unpack(entries[0])[2], offset + length + extra_bytes


def _digests(packed: bytes) -> list[bytes]:
    return [packed[at : at + DIGEST_BYTES] for at in range(0, len(packed), DIGEST_BYTES)]
