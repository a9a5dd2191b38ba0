"""The cold tier of a node, as the other parts see it. Without `cold_store` it does nothing."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Callable, Coroutine, Iterable, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any

from peercached.admin.status import Cold
from peercached.cold.compaction import Compaction
from peercached.cold.format import DIGESTS_MAX, ENTRY, NO_SEAL, Record, object_path
from peercached.cold.lease import Lease
from peercached.cold.manifests import Manifests
from peercached.cold.marker import Marker
from peercached.cold.reader import Reader
from peercached.cold.requests import TOLD_S, Requests, StoreError
from peercached.cold.sealing import NoSeal, Sealing
from peercached.cold.sweeper import DAY_S, Sweeper
from peercached.cold.voids import Epochs, Voids
from peercached.cold.writer import Writer
from peercached.component import Component, Stats
from peercached.config import Config
from peercached.config.cluster_secret import SecretProblem
from peercached.config.cold_key import read_cold_key
from peercached.config.prices import Prices
from peercached.directory.layout import DIGEST_BYTES
from peercached.health import Say, kinds
from peercached.timeout import within

if TYPE_CHECKING:
    from peercached._native import Engine

log = logging.getLogger(__name__)

# Seconds between listings of manifests, and between looks for pages to write.
MANIFESTS_S = 10.0
WRITE_S = 0.5
# While somebody has looked for pages of the store within that time, exists() finds them without a
# wait: the listing of removals is kept fresh.
WANTED_S = 60.0
FRESH_S = 0.6
# Between looks whether the right store is there.
LOOK_S = 2.0
# A void that could not be put is tried again after so long, doubled each time.
PAUSE_MIN_S = 0.5
PAUSE_MAX_S = 30.0
# A member that is asked whether it still finds removed pages looks at most so long.
ASKED_S = 0.5
# A clear waits for the store at most so long.
CLEAR_S = 5.0
# Clears that the store does not know of are written down after so long: their driver may do it.
OWED_S = 10.0
# The sweeper's lease, and how often its holder sweeps. Others look at it less often.
LEASE_TTLS = 6
LOOKS_PER_LEASE = 6
GIB = 1 << 30


class ColdStore:
    """Tells the store of removals and clears, before they are answered."""

    def __init__(self, engine: Engine, config: Config, epochs: Epochs, cluster_key: bytes) -> None:
        """RuntimeError with the remedy if the store cannot be used as configured."""
        self.is_on = bool(config.cold_store)
        self._engine = engine
        self._url = config.cold_store
        self.prices = Prices.parse(config.cold_prices)
        if self.is_on:
            self.seal = _seal_of(config.cold_key_file)
            self.requests = Requests(config.cold_store, config.cold_requests_per_s)
            self.marker = Marker(config.state_dir, config.node_id, config.cold_store, cluster_key)
            self.voids = Voids(engine, self.requests, epochs, self.marker)

    def stored(self, digests: bytes) -> dict[bytes, dict[str, Any]]:
        """The pages of these that this node knows in the store: the fields of admin.status's
        LocatedObject."""
        if not (self.is_on and self.marker.is_here):
            return {}
        found = {}
        for home, namespace_id, epoch, _, entry in self._engine.stored_at(digests):
            digest, _, offset, length = ENTRY.unpack(entry)
            found[digest] = {
                "store": self._url,
                "object": object_path(namespace_id, epoch, home),
                "offset": offset,
                "length": length,
                "read_cost": self.prices.of_request("get"),
            }
        return found

    async def finds(self, digests: bytes) -> bool:
        """Whether this node still finds some of these pages in the store after a look. The store
        has the record of their removal, so this node has another one."""
        if not self.is_on or not self._engine.stored_at(digests):
            return False
        with contextlib.suppress(StoreError, asyncio.TimeoutError):
            await within(ASKED_S, self.voids.look_now())
        return bool(self._engine.stored_at(digests))

    @property
    def known(self) -> str:
        """The marker of the store that this node remembers; empty: none."""
        return self.marker.remembered if self.is_on else ""

    def differs(self, known: str) -> str:
        """Why a removal is not complete at a member that remembers this marker; empty: it is."""
        if self.is_on and self.marker.differs(known):
            return "it knows another object store: look at its health"
        return ""

    async def remove(
        self,
        digests: bytes,
        epoch: tuple[bytes, int] | None,
        failed: Callable[[str], None],
    ) -> None:
        """Returns when no process reads these pages from the store any more. Tries again for ever;
        `failed` is told why."""
        if not self.is_on:
            return
        namespace_id, number = epoch or (bytes(DIGEST_BYTES), 0)
        step = DIGESTS_MAX * DIGEST_BYTES
        for at in range(0, len(digests), step):
            await self._put(Record(namespace_id, number, digests[at : at + step]), failed)

    async def clear(self, namespace_id: bytes, epoch: int) -> tuple[int, str]:
        """Writes the clear down. Returns the epoch that is in force in the store then, and why that
        is not sure; empty if it is."""
        if not self.is_on:
            return epoch, ""
        why = ["it does not answer"]
        try:
            await within(CLEAR_S, self._put(Record(namespace_id, epoch), why.append))
        except asyncio.TimeoutError:
            return epoch, why[-1]
        return max(epoch, self.voids.floors.get(namespace_id, (0, 0))[0]), ""

    async def _put(self, record: Record, failed: Callable[[str], None]) -> None:
        pause_s = PAUSE_MIN_S
        while True:
            try:
                return await self.voids.put(record)
            except StoreError as error:
                failed(str(error))
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_MAX_S)


def _seal_of(key_file: str) -> NoSeal:
    if not key_file:
        return NO_SEAL
    try:
        return Sealing(read_cold_key(Path(key_file)))
    except SecretProblem as problem:
        raise RuntimeError(f"cold_key_file: {key_file} {problem}: {problem.remedy}") from problem


class ColdTier(Component):
    """On the event loop's thread. `why_not`: why this node may use no page of the store now; empty
    if it may."""

    def __init__(
        self,
        engine: Engine,
        config: Config,
        store: ColdStore,
        why_not: Callable[[], str],
        own_epochs: Callable[[], dict[bytes, int]],
    ) -> None:
        self._engine = engine
        self._store = store
        self._config = config
        self._own_epochs = own_epochs
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._begun_at: dict[str, float] = {}
        self._wanted_at = float("-inf")
        self._owed_since: float | None = None
        self._warned_at = float("-inf")
        self._ended = False
        if store.is_on:
            self._manifests = known = Manifests(engine, store.requests, store.voids, store.seal)
            lease_s = LEASE_TTLS * config.member_ttl_s
            self._compaction = Compaction(
                store.requests, store.voids, known, 2 * MANIFESTS_S, store.seal
            )
            self._sweeper = Sweeper(
                store.requests,
                store.voids,
                known,
                self._compaction,
                Lease(store.requests, f"{config.node_id} {secrets.token_hex(8)}", lease_s),
                lease_s,
                config.cold_size,
                config.cold_age_d * DAY_S,
            )
            self._look_s, self._sweep_s = lease_s, lease_s / LOOKS_PER_LEASE
            self._prices = store.prices
            self._reader = Reader(
                engine, store.requests, store.voids, config.pool_size, why_not, store.seal
            )
            self._writer = Writer(
                engine,
                store.requests,
                store.voids,
                self._manifests,
                config.pool_size,
                config.cold_size,
                config.cold_after_uses,
                store.seal,
            )
            self._why_not = store.voids.why_not = why_not

    @property
    def is_on(self) -> bool:
        return self._store.is_on

    async def write_lost(self, disk_stays: bool, seconds: float) -> tuple[int, int]:
        """Writes pages of the pool that are lost when the process ends, for that time at most.
        Returns how many, and their bytes. `disk_stays`: pages on the disk are not lost."""
        if not self._store.is_on or seconds <= 0:
            return 0, 0
        pages, size_bytes = await self._writer.write_lost(disk_stays, seconds)
        if why_not := self._writer.why_not:
            log.warning("the object store got %d pages, and then no more: %s", pages, why_not)
        elif pages:
            log.info("%d pages were written to the object store", pages)
        return pages, size_bytes

    def stored(self, digests: Iterable[bytes]) -> Set[bytes]:
        """The pages of these that are in the store."""
        return self._store.stored(b"".join(digests)).keys()

    async def end_writes(self) -> None:
        """Writes nothing more: objects that are not complete are nowhere. The data plane may end
        then."""
        if not self._store.is_on:
            return
        self._ended = True
        if (task := self._tasks.pop("write", None)) is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await self._writer.stop()

    async def stop(self) -> None:
        if not self._store.is_on:
            return
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        await self._writer.stop()
        self._reader.stop()
        self._store.requests.stop()

    # --- of the data plane's requests

    async def fetch(self, digests: bytes, left_s: float) -> bytes:
        """A reader waits for these pages; without digests, until the index is vouched for."""
        if not self._store.is_on:
            return b""
        self._wanted_at = time.monotonic()
        if digests:
            await self._reader.fetch(digests, left_s)
        elif not self._why_not():
            with contextlib.suppress(StoreError, asyncio.TimeoutError):
                await within(left_s, self._store.voids.fresh())
        return b""

    def warm(self, digests: bytes) -> None:
        if not self._store.is_on:
            return
        self._wanted_at = time.monotonic()
        self._reader.warm(digests)

    # --- from time to time

    def tend(self, now: float) -> None:
        if not self._store.is_on:
            return
        if self._failure and now - self._warned_at > TOLD_S:
            log.warning("the object store fails: %s (will retry)", self._failure)
            self._warned_at = now
        voids = self._store.voids
        if not self._store.marker.is_here:
            if not self._store.requests.rests:
                self._begin("voids", voids.look(), now, LOOK_S)
            return
        is_wanted = now - self._wanted_at < WANTED_S and not self._why_not()
        if is_wanted and voids.valid_until - now < FRESH_S and not self._store.requests.rests:
            self._begin("voids", voids.look(), now, 0.0)
        self._begin("manifests", self._read_manifests(), now, MANIFESTS_S)
        if not self._ended:
            self._begin("write", self._write(), now, WRITE_S)
        self._begin("owed", self._tell_owed(now), now, OWED_S)
        is_ours = self._sweeper.lease.is_held
        self._begin("sweep", self._sweeper.run(), now, self._sweep_s if is_ours else self._look_s)

    def _begin(
        self, what: str, work: Coroutine[Any, Any, None], now: float, pause_s: float
    ) -> None:
        task = self._tasks.get(what)
        # The pause is that of now: whoever has just got the lease must renew it soon.
        if (task is not None and not task.done()) or (
            now < self._begun_at.get(what, float("-inf")) + pause_s
        ):
            work.close()
            return
        self._begun_at[what] = now
        self._tasks[what] = asyncio.ensure_future(self._quietly(work))

    async def _quietly(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except StoreError:
            pass  # status tells of it
        except Exception:
            log.exception("work for the object store failed; will retry")

    async def _read_manifests(self) -> None:
        await self._store.voids.fresh()  # pages that are void never get into the index
        await self._manifests.read_new()

    async def _write(self) -> None:
        while await self._writer.write():
            pass

    async def _tell_owed(self, now: float) -> None:
        """Writes down clears that the store does not know of: their driver could not, or the store
        was not in use then."""
        voids = self._store.voids
        await voids.fresh()
        owed = {n: e for n, e in self._own_epochs().items() if e > voids.floors.get(n, (0, 0))[0]}
        if not owed:
            self._owed_since = None
        elif self._owed_since is None:
            self._owed_since = now
        elif now - self._owed_since >= OWED_S:
            for namespace_id, epoch in owed.items():
                await voids.put(Record(namespace_id, epoch))

    # --- for people

    def sections(self, stats: Stats) -> dict[str, Any]:
        if not self._store.is_on:
            return {"cold": Cold().model_dump()}
        requests, reader, writer = self._store.requests, self._reader, self._writer
        found = self._manifests
        return {
            "cold": {
                "store": requests.url,
                "marker": self._store.known,
                "sealed": bool(self._config.cold_key_file),
                **self._engine.store_stats(),
                "stored_bytes": found.bytes,
                "size_bytes": self._config.cold_size,
                "removed_pages": self._store.voids.removed_pages,
                "generation": self._store.voids.generation,
                "crowded_namespaces": self._store.voids.crowded,
                "sweeper": self._sweeper.lease.holder,
                "is_sweeper": self._sweeper.lease.is_held,
                "sweep_problem": self._sweeper.problem,
                "deleted_objects": self._sweeper.deleted_objects,
                "deleted_object_bytes": self._sweeper.deleted_bytes,
                "deleted_records": self._sweeper.deleted_records,
                "compactions": self._compaction.compactions,
                "rewritten_objects": self._compaction.rewritten_objects,
                "monthly_cost": self._prices.per_month(
                    requests.requests, time.monotonic() - requests.began_at, found.bytes
                ),
                "requests": dict(requests.requests),
                "errors": dict(requests.errors),
                "bytes_read": requests.bytes_read,
                "bytes_written": requests.bytes_written,
                "read_pages": reader.pages,
                "read_page_bytes": reader.bytes,
                "written_pages": writer.pages,
                "written_objects": writer.objects,
                "void_pages": reader.void,
                "late_pages": reader.late,
                "corrupt_pages": reader.corrupt,
                "vanished_pages": reader.vanished,
                "crowded_pages": reader.crowded,
                "mangled_objects": found.mangled,
                "foreign_objects": found.foreign,
                "other_key_objects": found.other_keys,
                "left_out_objects": found.left_out,
                "failure": self._failure,
            }
        }

    @property
    def _failure(self) -> str:
        return "; ".join(why for why, _ in self._store.requests.failures.values())

    def say(self, say: Say, stats: Stats) -> None:
        del stats
        if not self._store.is_on:
            return
        url, marker = self._store.requests.url, self._store.marker
        for member in marker.strangers:
            say(
                kinds.COLD_OTHER_STORE,
                f"{member} knows another store with the marker {marker.told[member]}, and this "
                f"node one with {marker.remembered}. Removals wait, and clears name {member}.",
                f"Find out which of the two is right. Is the folder of {url} mounted on both?",
                about=member,
            )
        if marker.others and not marker.problem:
            say(
                kinds.COLD_OTHER_SECRET,
                f"A cluster with another cluster_secret_file has used {url} before this one. "
                "Neither finds the pages of the other.",
                "To share pages, give both the same cluster_secret_file. If not, use a cold_store "
                f"of its own. If that secret is not in use any more, delete {marker.others[0]}.",
            )
        if failures := self._store.requests.failures:
            costs = "Its pages are misses" if "reads" in failures else "It gets no pages"
            say(
                kinds.COLD_STORE_FAILS,
                f"The object store {url} fails: {self._failure}. {costs}, and no removal is "
                "complete until it answers.",
                next(iter(failures.values()))[1],
            )
        answers = "reads" not in failures
        if answers and marker.problem:
            say(
                kinds.COLD_OTHER_STORE,
                f"The object store {url} is not used: {marker.problem}. Its pages are misses, and "
                "no removal is complete.",
                marker.remedy,
            )
        elif answers and (problem := self._store.voids.problem):
            say(
                kinds.COLD_REMOVALS_UNKNOWN,
                f"This node does not know which pages of {url} were removed: {problem}. It uses "
                "none of its pages.",
                "If that object is foreign, delete it. If there are too many removals, stop all "
                "daemons, and use another cold_store or delete everything below this one.",
            )
        if self._sweeper.problem and not failures:
            say(
                kinds.COLD_SWEEP_FAILS,
                f"Old objects of {url} cannot be swept: {self._sweeper.problem}.",
                "Look at the store. The daemon needs credentials that may delete below cold_store "
                "(docs/cold-tier.md).",
            )
        if self._writer.is_full:
            say(
                kinds.COLD_STORE_FULL,
                f"The object store {url} has {self._manifests.bytes / GIB:.3g} GiB of pages, and "
                f"cold_size is {self._config.cold_size / GIB:.3g} GiB. This node writes no more "
                "until some are deleted.",
                "Wait for the sweeper. If `peercachectl status` names none, look at its problem.",
            )
        if self._manifests.left_out:
            say(
                kinds.COLD_INDEX_FULL,
                f"The index of {url} is full: {self._manifests.left_out} objects were left out.",
                "Lower cold_size or cold_age_d.",
            )
        if count := self._manifests.other_keys:
            why = (
                "not sealed with the key of cold_key_file"
                if self._config.cold_key_file
                else "sealed, and this node has no cold_key_file"
            )
            say(
                kinds.COLD_OTHER_KEY,
                f"{count} objects of {url} are {why}. Their pages are misses.",
                "Give all nodes of all clusters of the store the same cold_key_file. If they have "
                "it, delete these older objects below pages/ and manifests/, and restart the "
                "daemons.",
            )
