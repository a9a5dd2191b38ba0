"""Deletes from the store what is old, too much, or of no use any more.

All of it may be done by two processes at once, or by one that was frozen for a week:

- Pages and manifests may be deleted at any time. That costs misses.
- A record of removals is deleted only if records with later names make it useless (`useless()`),
  VALID_S after they were listed. Stores list in the order of names, so a listing finds the record
  or the later ones. A folder does not, so there a listing that takes longer than VALID_S does not
  count (voids.py). Deletions by others cannot break the chain: what makes the later ones useless
  is later still.
- Compactions by two processes: see compaction.py.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict

from peercached.cold import voids
from peercached.cold.compaction import Compaction
from peercached.cold.format import (
    DIGESTS_MAX,
    RECORD_BYTES_MAX,
    Mangled,
    Record,
    of_log_path,
    of_object_path,
    parse_record,
)
from peercached.cold.lease import Lease
from peercached.cold.manifests import Manifests
from peercached.cold.requests import Requests, StoreError
from peercached.cold.voids import ANY_NAMESPACE, Voids

log = logging.getLogger(__name__)

DAY_S = 86400
# Leftovers are objects under pages/ without a manifest: their writer may still be about to put it.
LEFTOVER_AGE_S = DAY_S
LEFTOVERS_S = 6 * 3600.0  # between two looks for them
PAGES_MAX = 1 << 18  # names of objects in one look
# So many records of one namespace become one.
MERGE_MIN = 64
# A compaction pays if so much of a namespace is dead, or if it has so many removed pages.
DEAD_SHARE = 0.3
REMOVED_MAX = 1 << 16
# Pauses between compactions of a namespace, and between looks at the records, in lease times.
COMPACT_LEASES = 20
RECORDS_LEASES = 2


class Sweeper:
    """On the event loop's thread. `size_max`: the key cold_size; `age_max_s`: the key cold_age_d,
    0: no limit. `lease_s`: how long the holder of the lease may be silent."""

    def __init__(
        self,
        requests: Requests,
        removals: Voids,
        known: Manifests,
        compaction: Compaction,
        lease: Lease,
        lease_s: float,
        size_max: int,
        age_max_s: float,
    ) -> None:
        self._requests = requests
        self._voids = removals
        self._known = known
        self._compaction = compaction
        self.lease = lease
        self._lease_s = lease_s
        self._size_max = size_max
        self._age_max_s = age_max_s
        self._records: dict[str, Record] = {}
        self._records_at = self._leftovers_at = float("-inf")
        self._compacted_at: dict[bytes, float] = {}
        self.deleted_objects = self.deleted_bytes = self.deleted_records = 0
        self.problem = ""

    async def run(self) -> None:
        """One round, if this node has the lease."""
        try:
            if await self.lease.look():
                await self._sweep()
            self.problem = ""
        except LostLease:
            pass
        except StoreError as error:
            self.problem = str(error)
            raise

    async def _go_on(self) -> None:
        """Before each step: are we still the sweeper?"""
        if not await self.lease.look():
            raise LostLease

    async def _sweep(self) -> None:
        await self._voids.fresh()
        await self._delete_objects(self._void_objects())
        await self._delete_objects(self._old_objects())
        await self._delete_objects(self._objects_beyond_the_size())
        now = time.monotonic()
        if now - self._records_at >= RECORDS_LEASES * self._lease_s:
            await self._tend_records()
            self._records_at = now
            await self._compact()
        if now - self._leftovers_at >= LEFTOVERS_S:
            await self._delete_leftovers()
            self._leftovers_at = now

    # --- objects

    def _void_objects(self) -> list[bytes]:
        return [
            name
            for name, one in self._known.objects.items()
            if self._voids.is_below(one.namespace_id, one.epoch, one.generation)
        ]

    def _by_age(self) -> list[bytes]:
        return sorted(self._known.objects, key=lambda name: self._known.objects[name].made_ms)

    def _old_objects(self) -> list[bytes]:
        if not self._age_max_s:
            return []
        oldest_ms = (time.time() - self._age_max_s) * 1000
        return [n for n, one in self._known.objects.items() if one.made_ms < oldest_ms]

    def _objects_beyond_the_size(self) -> list[bytes]:
        """The oldest. Objects of other keys are not ours to choose from."""
        beyond = self._known.bytes - self._known.other_keys_bytes - self._size_max
        chosen: list[bytes] = []
        for name in self._by_age() if beyond > 0 else ():
            if beyond <= 0:
                break
            chosen.append(name)
            beyond -= self._known.objects[name].payload_bytes
        return chosen

    async def _delete_objects(self, names: list[bytes]) -> None:
        """The manifest first: without it nobody looks for the pages."""
        for name in names:
            await self._go_on()
            if (one := self._known.objects.get(name)) is None:
                continue
            await self._requests.delete(one.path)
            self._known.forget([name])
            if not self._known.has_home(one.home):
                await self._requests.delete(one.home_path)
                self.deleted_objects += 1
                self.deleted_bytes += one.payload_bytes

    async def _delete_leftovers(self) -> None:
        """Pages without a manifest, and manifests without pages: lifecycle rules delete either."""
        began_s = time.time()
        before = list(self._known.objects)
        found = await self._requests.dated("pages", "", PAGES_MAX, spare=True)
        await self._voids.look()  # it is still the right store: in another one all looks gone
        homes = {of_object_path(path) for path, _ in found}
        for name in before:
            one = self._known.objects.get(name)
            if one is not None and one.home not in homes:
                await self._go_on()
                await self._requests.delete(one.path)
                self._known.forget([name])
        await self._known.read(is_complete=True)
        for path, put_at in found:
            of = of_object_path(path)
            if of is None or self._known.has_home(of):
                continue
            if began_s - put_at.timestamp() >= LEFTOVER_AGE_S:
                await self._go_on()
                await self._requests.delete(path)
                self.deleted_objects += 1

    # --- records

    async def _tend_records(self) -> None:
        """Deletes useless records, and makes one of many."""
        await self._read_records()
        await self._delete_records(useless(self._records), voids.VALID_S)
        merged = defaultdict(list)
        for path, record in self._records.items():
            if 0 < len(record.each) <= DIGESTS_MAX // MERGE_MIN:
                merged[record.namespace_id, record.epoch].append(path)
        for (namespace_id, epoch), paths in merged.items():
            if len(paths) < MERGE_MIN:
                continue
            await self._go_on()
            some = sorted(paths)[: DIGESTS_MAX // (DIGESTS_MAX // MERGE_MIN)]
            digests = {digest for path in some for digest in self._records[path].each}
            # It gets a generation that is not lower than theirs, and a later name.
            merged_digests = b"".join(sorted(digests))
            await self._voids.put(Record(namespace_id, epoch, merged_digests), anew=True)
            await self._delete_records(some)

    async def _read_records(self) -> None:
        paths = await self._requests.names(voids.FOLDER, "", voids.RECORDS_MAX, spare=True)
        self._records = {path: self._records[path] for path in paths if path in self._records}
        for path in paths:
            of = of_log_path(voids.FOLDER, path)
            if of is None or path in self._records:
                continue
            await self._go_on()
            try:
                packed = await self._requests.get(path, RECORD_BYTES_MAX, spare=True)
                self._records[path] = parse_record(packed, of[1])
            except Mangled:
                continue  # voids.py tells of it
            except StoreError as error:
                if error.kind != "missing":
                    raise

    async def _delete_records(self, paths: list[str], pause_s: float = 0.0) -> None:
        await asyncio.sleep(pause_s if paths else 0.0)
        for path in sorted(paths):
            await self._go_on()
            await self._requests.delete(path)
            self._records.pop(path, None)
            self.deleted_records += 1

    # --- compaction

    async def _compact(self) -> None:
        """Of the namespace that gains most, if it pays."""
        removed: dict[bytes, int] = defaultdict(int)
        for record in self._records.values():
            removed[record.namespace_id] += len(record.each)
        removed.pop(ANY_NAMESPACE, None)
        live = self._known.live_bytes()
        bytes_of: dict[bytes, int] = defaultdict(int)
        dead_of: dict[bytes, int] = defaultdict(int)
        for name, one in self._known.objects.items():
            bytes_of[one.namespace_id] += one.page_bytes
            if one.is_indexed:
                dead_of[one.namespace_id] += one.page_bytes - live.get(name, 0)
        now = time.monotonic()
        pause_s = COMPACT_LEASES * self._lease_s
        paying = [
            namespace_id
            for namespace_id, pages in removed.items()
            if pages
            and now - self._compacted_at.get(namespace_id, float("-inf")) >= pause_s
            and (
                pages >= REMOVED_MAX or dead_of[namespace_id] > DEAD_SHARE * bytes_of[namespace_id]
            )
        ]
        if not paying:
            return
        namespace_id = max(paying, key=lambda one: (dead_of[one], removed[one]))
        self._compacted_at[namespace_id] = now
        await self._compaction.run(namespace_id, self._go_on)
        await self._tend_records()


class LostLease(Exception):
    pass


def useless(records: dict[str, Record]) -> list[str]:
    """The records that say nothing that later ones do not say. Objects that they void are void
    without them, whenever they are put (docs/cold-tier.md, "Generations")."""
    floors: dict[bytes, tuple[int, int]] = {}  # of the records with later names
    highest = -1
    found = []
    for path in sorted(records, reverse=True):
        record = records[path]
        floor = floors.get(record.namespace_id, (-1, 0))
        # All objects in which it voids pages are below the floor; or it is a lower floor.
        said = (record.epoch, record.upto) < floor if record.digests else record.floor <= floor
        if record.namespace_id == ANY_NAMESPACE and not record.digests:
            said = True  # it only counted
        if said and highest >= record.generation:
            found.append(path)
            continue
        highest = max(highest, record.generation)
        if record.namespace_id != ANY_NAMESPACE:
            floors[record.namespace_id] = max(floor, record.floor)
    return found
