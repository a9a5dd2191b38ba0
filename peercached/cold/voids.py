"""The log of removals and clears in the store, and how long a listing of it counts.

Pages in objects outlive their removal, so the removal is written down beside them. The rules
(docs/cold-tier.md):

1. A removal or a clear puts its record, and is answered VALID_S after the put at the earliest.
2. A page of the store is used only until VALID_S after the begin of a listing of all records, and
   only if none of them voids it.

So whoever uses a page after the answer has listed the record. Both times are lengths on a process's
own monotonic clock; no clocks are compared.

**Generations** let records end. The store has one counter, the highest generation of any record. A
page is born in the generation that its node knows when a worker sets it, and keeps that wherever it
goes. An object has the lowest one of its pages. A removal has the generation that its remover finds
in a listing that began after its put, so no older copy is born later. It voids its pages in objects
up to the generation behind. Compaction (compaction.py) copies what is not void into that one, and
raises the floor of the namespace to it. Then the older records say nothing any more.

Records have a time in their names so that a listing need not begin at the first one. It begins
SLACK_MS before the newest name that the listing before the last one found. If a record is more than
SLACK_MS newer than its own, a writer puts its record once more, under a later name. So
every listing that begins after the put finds it, whatever the clocks say.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from peercached.cold.format import (
    RECORD_BYTES_MAX,
    Index,
    Mangled,
    Record,
    log_path,
    name_of,
    of_log_path,
    parse_record,
)
from peercached.cold.marker import FOLDER as MARKERS
from peercached.cold.marker import Marker
from peercached.cold.requests import Requests, StoreError
from peercached.directory.layout import DIGEST_BYTES

if TYPE_CHECKING:
    from peercached._native import Engine

log = logging.getLogger(__name__)

FOLDER = MARKERS  # one listing has both
VALID_S = 1.0
# What a user of the store wants to have left of that.
MARGIN_S = 0.25
SLACK_MS = 600_000
# Bounds of the removed pages that a node remembers, of one namespace and of all. Beyond them it
# takes all older objects of the largest namespace for void.
NAMESPACE_DIGESTS_MAX = 1 << 18
DIGESTS_MAX = 1 << 20
RECORDS_MAX = 1 << 17
# Records read at a time.
READ_AT_ONCE = 64
PUT_AGAIN_MAX = 8
LIST_AGAIN_MAX = 4
# Removals whose namespace is not known.
ANY_NAMESPACE = bytes(DIGEST_BYTES)


class Epochs(Protocol):
    def learn(
        self, epochs: Iterable[tuple[bytes, int]], asked: bool = False, by: str = ""
    ) -> None: ...


class Voids:
    """On the event loop's thread."""

    def __init__(self, engine: Engine, requests: Requests, epochs: Epochs, marker: Marker) -> None:
        self._engine = engine
        self._requests = requests
        self._epochs = epochs
        self.marker = marker
        self.why_not: Callable[[], str] = lambda: ""  # why this node may read no pages now
        # (namespace id, epoch) -> removed page -> it is void up to that generation
        self._removed: dict[tuple[bytes, int], dict[bytes, int]] = {}
        # namespace id -> (epoch, generation): objects below are void
        self.floors: dict[bytes, tuple[int, int]] = {}
        self.generation = 0  # the highest of any record
        self._returns = 0  # of the store, after which its counter was raised
        self._valid_until = float("-inf")  # monotonic seconds
        self._known: dict[str, int] = {}  # records read: path -> milliseconds in its name
        self._tried: dict[bytes, int] = {}  # content of records of ours: milliseconds in the name
        self._damaged: set[str] = set()  # records of ours that the store has damaged
        self._newest_ms = self._newest_before_ms = 0
        self._listing: asyncio.Task[None] | None = None
        self.problem = ""  # why no listing is complete; empty: the last one was
        self.floors_raised = 0  # how often, by a compaction
        self.crowded = 0  # namespaces with too many removed pages

    # --- readers

    @property
    def valid_until(self) -> float:
        return self._valid_until

    @property
    def has_looked(self) -> bool:
        """Whether the last listing was of the right store. Before that, floors are not known."""
        return self.marker.is_here and self._valid_until > float("-inf")

    async def fresh(self) -> float:
        """Looks again if the last look counts for less than MARGIN_S. Returns the end of that time
        in monotonic seconds. StoreError if the store does not say."""
        while self._valid_until - time.monotonic() < MARGIN_S:
            if self._requests.rests:
                raise StoreError("backoff", "the store failed a moment ago")
            begun = self._listing
            await self.look()
            if begun is None and self._valid_until - time.monotonic() < MARGIN_S:
                raise StoreError(
                    "other", f"listing {FOLDER} takes longer than {VALID_S - MARGIN_S:g} s"
                )
        return self._valid_until

    def is_below(self, namespace_id: bytes, epoch: int, generation: int) -> bool:
        """Whether all objects of this position are void."""
        return (epoch, generation) < self.floors.get(namespace_id, (0, 0))

    def is_void(self, digest: bytes, namespace_id: bytes, epoch: int, generation: int) -> bool:
        return self.is_below(namespace_id, epoch, generation) or generation <= max(
            removed.get(digest, -1) for removed in self._removed_of(namespace_id, epoch)
        )

    def is_removed(self, digest: bytes, namespace_id: bytes, epoch: int) -> bool:
        """Whether a record has this page."""
        return any(digest in removed for removed in self._removed_of(namespace_id, epoch))

    def live(self, index: Index) -> bytes:
        """The entries of an object's index that are not void."""
        where = (index.namespace_id, *index.position)
        if self.is_below(*where):
            return b""
        if not any(self._removed_of(*where[:2])):
            return index.entries
        each = index.each
        return b"".join(entry for entry in each if not self.is_void(entry[:DIGEST_BYTES], *where))

    def _removed_of(self, namespace_id: bytes, epoch: int) -> tuple[dict[bytes, int], ...]:
        of_any = self._removed.get((ANY_NAMESPACE, 0), {})
        return self._removed.get((namespace_id, epoch), {}), of_any

    @property
    def removed_pages(self) -> int:
        return sum(map(len, self._removed.values()))

    async def look(self) -> None:
        """Joins the listing that is under way, or begins one. StoreError if it is not complete."""
        if self._listing is None or self._listing.done():
            self._listing = asyncio.ensure_future(self._list())
            self._listing.add_done_callback(self._listed)
        await asyncio.shield(self._listing)

    def _listed(self, task: asyncio.Task[None]) -> None:
        self._listing = None
        if not task.cancelled() and (error := task.exception()) is not None:
            self.problem = str(error)

    async def _list(self) -> None:
        for _ in range(LIST_AGAIN_MAX):
            if await self._list_once():
                return
        raise StoreError("other", f"objects of {FOLDER} vanish while they are read")

    async def _list_once(self) -> bool:
        """False: a record has vanished since it was listed, or may have been missed (sweeper.py).
        Records that made it useless may have been missed, too, so list again."""
        begun = time.monotonic()
        after_ms = max(self._newest_before_ms - SLACK_MS, 0)
        after = log_path(FOLDER, after_ms, bytes(DIGEST_BYTES)) if after_ms else ""
        paths = await self._requests.names(FOLDER, after, RECORDS_MAX, urgent=True)
        times = {path: of_log_path(FOLDER, path) for path in paths}
        if not await self.marker.check(paths, self._requests):
            return False
        is_back = self.marker.returns != self._returns
        is_emptied = self._known and self._known.keys().isdisjoint(paths)
        if self.generation and (is_back or is_emptied):
            await self._raise_counter()
            return False
        self._returns = self.marker.returns
        new = [
            (path, of) for path, of in times.items() if of is not None and path not in self._known
        ]
        for at in range(0, len(new), READ_AT_ONCE):
            some = new[at : at + READ_AT_ONCE]
            read = await asyncio.gather(
                *(self._read(path, of[1]) for path, of in some), return_exceptions=True
            )
            # What one listing has read, the next one need not read. Else a new node would never be
            # done with many records in a store that now and then fails.
            taken = {
                at[0]: one for at, one in zip(some, read, strict=True) if isinstance(one, Record)
            }
            self._take(list(taken.values()))
            self._known |= {path: of[0] for path, of in some if path in taken}
            for failed in read:
                if isinstance(failed, BaseException):
                    raise failed
            if None in read:
                return False
        if not self._requests.lists_in_order and time.monotonic() - begun > VALID_S:
            return False
        for path in [path for path, ms in self._known.items() if ms < after_ms]:
            del self._known[path]
        for name in [name for name, ms in self._tried.items() if ms < after_ms]:
            del self._tried[name]
        self._newest_before_ms = self._newest_ms
        self._newest_ms = max([self._newest_ms, *(of[0] for of in times.values() if of)])
        self.problem = ""
        self._valid_until = begun + VALID_S
        if not self.why_not():
            self._engine.vouch_until(self._valid_until)
        return True

    async def _raise_counter(self) -> None:
        """The store has come back, or all records have gone that the last listing had. It may be
        another one, or an older copy: its counter must not be lower than what our pages were born
        in."""
        returns = self.marker.returns
        packed = Record(ANY_NAMESPACE, 0, generation=self.generation).pack()
        time_ms = max(time.time_ns() // 1_000_000, self._newest_ms + 1)
        path = log_path(FOLDER, time_ms, name_of(packed))
        await self._requests.put(path, packed, urgent=True)
        self._returns = returns
        self._known.clear()

    async def _read(self, path: str, name: bytes) -> Record | None:
        try:
            packed = await self._requests.get(path, RECORD_BYTES_MAX, urgent=True)
            return parse_record(packed, name)
        except StoreError as error:
            if error.kind == "missing":
                return None
            raise
        except Mangled as error:
            # It may be of a removal: nobody may use pages that it would void.
            raise StoreError(
                "other", f"{path} cannot be read as a record of removals: {error}"
            ) from error

    def _take(self, records: list[Record]) -> None:
        """Without a pause: whoever is vouched for the index finds none of these pages in it."""
        for record in records:
            self.generation = max(self.generation, record.generation)
            self._raise_floor(record.namespace_id, record.floor)
        dropped = []
        for record in records:
            removed = self._removed.setdefault((record.namespace_id, record.epoch), {})
            if not record.digests or self._is_over(record):
                continue
            for digest in record.each:
                removed[digest] = max(removed.get(digest, 0), record.upto)
            dropped.append(record.digests)
        if dropped:
            self._engine.drop_stored(b"".join(dropped))
        self._engine.raise_generation(self.generation)
        self._bound()

    def _is_over(self, record: Record) -> bool:
        """Whether a floor voids all objects that this record is about."""
        return self.is_below(record.namespace_id, record.epoch, record.upto)

    def _raise_floor(self, namespace_id: bytes, floor: tuple[int, int]) -> None:
        known = self.floors.get(namespace_id, (0, 0))
        if floor <= known or namespace_id == ANY_NAMESPACE:
            return
        self.floors[namespace_id] = floor
        self._engine.drop_stored_below(namespace_id, *floor)
        for of, removed in list(self._removed.items()):
            if of[0] == namespace_id and of[1] <= floor[0]:
                left = {d: upto for d, upto in removed.items() if (of[1], upto) >= floor}
                if left:
                    self._removed[of] = left
                else:
                    del self._removed[of]
        if floor[0] > known[0]:
            self._epochs.learn([(namespace_id, floor[0])])
        if floor[1]:
            self.floors_raised += 1

    def _bound(self) -> None:
        """Forgets the removed pages of namespaces that have too many. Then their objects are void,
        as if a compaction had copied nothing. Only this node raises the floor."""
        while True:
            largest = max(self._removed, key=lambda of: len(self._removed[of]), default=None)
            if largest is None:
                return
            count = len(self._removed[largest])
            if count <= NAMESPACE_DIGESTS_MAX and self.removed_pages <= DIGESTS_MAX:
                return
            if largest[0] == ANY_NAMESPACE:
                raise StoreError(
                    "other", f"{FOLDER} has {count} removed pages of unknown namespaces"
                )
            self.crowded += 1
            upto = max(self._removed[largest].values())
            self._raise_floor(largest[0], (largest[1], upto + 1))

    # --- writers

    async def put(self, record: Record, *, anew: bool = False) -> None:
        """Returns when no process uses these pages of the store any more. StoreError if that is not
        sure. A removal, and a floor without a generation, get the highest one that is known.
        `anew`: under a name of its own, also if there is such a record already."""
        if not self.has_looked:
            # It writes nothing to another store, and no record that is there already.
            await self.look()
        await self._delete_damaged()
        is_stamped = bool(record.digests) or not record.generation
        time_ms = max(time.time_ns() // 1_000_000, self._newest_ms + 1)
        for _ in range(PUT_AGAIN_MAX):
            if is_stamped:
                record = replace(record, generation=max(record.generation, self.generation))
            packed = record.pack()
            name = name_of(packed)
            # A removal may be tried again and again, by several nodes: one record is enough.
            known_ms = 0 if anew else self._newest_of(name)
            is_listed = known_ms and self._newest_ms < known_ms + SLACK_MS
            at_ms = known_ms if is_listed else time_ms
            path = log_path(FOLDER, at_ms, name)
            self._tried[name] = at_ms
            await self._requests.put(path, packed, urgent=True)
            put_at = time.monotonic()
            try:
                await self._list_from(put_at)
            except StoreError:
                if await self._is_damaged(path, packed):
                    self._damaged.add(path)
                raise
            if self._newest_ms >= at_ms + SLACK_MS:
                time_ms = self._newest_ms
                continue
            if record.generation < self.generation and record.digests:
                continue  # a page may be born in the later one
            if not self._has(record):
                raise StoreError("other", f"the store does not list {path}, which is there")
            await asyncio.sleep(max(put_at + VALID_S - time.monotonic(), 0.0))
            return
        raise StoreError("other", f"clocks of the writers of {FOLDER} run away from each other")

    def _newest_of(self, name: bytes) -> int:
        """The latest time in the names of records with that content that have been read, or that
        this node has tried to put; or 0."""
        same = (ms for path, ms in self._known.items() if path.endswith(name.hex()))
        return max(same, default=self._tried.get(name, 0))

    async def _is_damaged(self, path: str, packed: bytes) -> bool:
        """Whether the store really has something else than its name says. We put it again."""
        for _ in range(2):
            try:
                if await self._requests.get(path, RECORD_BYTES_MAX, urgent=True) == packed:
                    return False
            except StoreError:
                return False
        return True

    async def _delete_damaged(self) -> None:
        """While one is there, nobody uses the store, and no removal is complete."""
        for path in list(self._damaged):
            await self._requests.delete(path)
            self._damaged.discard(path)

    def _has(self, record: Record) -> bool:
        """Whether this record, or one that says at least as much, has been read."""
        if self.generation < record.generation:
            return False
        if not record.digests:
            floor = self.floors.get(record.namespace_id, (0, 0))
            return record.namespace_id == ANY_NAMESPACE or floor >= record.floor
        removed = self._removed.get((record.namespace_id, record.epoch), {})
        return self._is_over(record) or all(
            removed.get(digest, -1) >= record.upto for digest in record.each
        )

    async def look_now(self) -> None:
        """Returns when a listing that begins now is complete."""
        await self._list_from(time.monotonic())

    async def look_anew(self) -> int:
        """Reads all records. Returns the highest generation, which was known before that."""
        while True:
            before = self.generation
            await self._list_from(time.monotonic())
            if self.generation == before:
                return before

    async def _list_from(self, at: float) -> None:
        """Returns when a listing that began after `at` is complete."""
        while self._valid_until < at + VALID_S:
            await self.look()
