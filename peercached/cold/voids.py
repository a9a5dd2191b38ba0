"""The log of removals and clears in the store, and how long a listing of it counts.

Pages in objects outlive their removal, so the removal is written down beside them. The rules
(docs/cold-tier.md):

1. A removal or a clear puts its record, and is answered VALID_S after the put at the earliest.
2. A page of the store is used only until VALID_S after the begin of a listing of all records, and
   only if none of them voids it.

So whoever uses a page after the answer has listed the record. Both times are lengths on a process's
own monotonic clock; no clocks are compared.

Records have a time in their names so that a listing need not begin at the first one. It begins
SLACK_MS before the newest name that the listing before the last one found. If a record is more than
SLACK_MS newer than its own, a writer puts its record once more, under a later name. So
every listing that begins after the put finds it, whatever the clocks say.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from peercached.cold.format import (
    RECORD_BYTES_MAX,
    Mangled,
    Record,
    log_path,
    name_of,
    of_log_path,
    parse_record,
)
from peercached.cold.requests import Requests, StoreError
from peercached.directory.layout import DIGEST_BYTES

if TYPE_CHECKING:
    from peercached._native import Engine

log = logging.getLogger(__name__)

FOLDER = "voids"
VALID_S = 1.0
# What a user of the store wants to have left of that.
MARGIN_S = 0.25
SLACK_MS = 600_000
# Bounds of what a node remembers. Beyond them it uses no page of the store.
DIGESTS_MAX = 1 << 20
RECORDS_MAX = 1 << 16
# Records read at a time.
READ_AT_ONCE = 64
PUT_AGAIN_MAX = 8


class Epochs(Protocol):
    def learn(
        self, epochs: Iterable[tuple[bytes, int]], asked: bool = False, by: str = ""
    ) -> None: ...


class Voids:
    """On the event loop's thread."""

    def __init__(self, engine: Engine, requests: Requests, epochs: Epochs) -> None:
        self._engine = engine
        self._requests = requests
        self._epochs = epochs
        self.digests: set[bytes] = set()  # removed
        self.floors: dict[bytes, int] = {}  # namespace id -> pages below that epoch are void
        self._valid_until = float("-inf")  # monotonic seconds
        self._known: dict[str, int] = {}  # records read: path -> milliseconds in its name
        self._newest_ms = self._newest_before_ms = 0
        self._listing: asyncio.Task[None] | None = None
        self.problem = ""  # why no listing is complete; empty: the last one was
        self.records = 0
        self._is_full = False

    # --- readers

    @property
    def valid_until(self) -> float:
        return self._valid_until

    async def fresh(self) -> float:
        """Looks again if the last look counts for less than MARGIN_S. Returns the end of that time
        in monotonic seconds. StoreError if the store does not say."""
        while self._valid_until - time.monotonic() < MARGIN_S:
            if self._requests.rests:
                raise StoreError("backoff", self._requests.failure[0])
            begun = self._listing
            await self.look()
            if begun is None and self._valid_until - time.monotonic() < MARGIN_S:
                raise StoreError(
                    "other", f"listing {FOLDER} takes longer than {VALID_S - MARGIN_S:g} s"
                )
        return self._valid_until

    def is_void(self, digest: bytes, namespace_id: bytes, epoch: int) -> bool:
        return digest in self.digests or epoch < self.floors.get(namespace_id, 0)

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
        if self._is_full:
            raise self._too_many()
        begun = time.monotonic()
        after_ms = max(self._newest_before_ms - SLACK_MS, 0)
        after = log_path(FOLDER, after_ms, bytes(DIGEST_BYTES)) if after_ms else ""
        paths = await self._requests.names(FOLDER, after, RECORDS_MAX, urgent=True)
        times = {path: of_log_path(FOLDER, path) for path in paths}
        new = [
            (path, of) for path, of in times.items() if of is not None and path not in self._known
        ]
        records: list[Record] = []
        bytes_left = (DIGESTS_MAX - len(self.digests)) * DIGEST_BYTES
        for at in range(0, len(new), READ_AT_ONCE):
            some = new[at : at + READ_AT_ONCE]
            read = await asyncio.gather(*(self._read(path, of[1]) for path, of in some))
            records += filter(None, read)
            if sum(len(record.digests) for record in records) > bytes_left:
                self._is_full = True
                raise self._too_many()
        self._take(records)
        self._known |= {path: of[0] for path, of in new}
        for path in [path for path, ms in self._known.items() if ms < after_ms]:
            del self._known[path]
        self._newest_before_ms = self._newest_ms
        self._newest_ms = max([self._newest_ms, *(of[0] for of in times.values() if of)])
        self.problem = ""
        self._valid_until = begun + VALID_S
        self._engine.vouch_until(self._valid_until)

    def _too_many(self) -> StoreError:
        return StoreError("other", f"{FOLDER} has more than {DIGESTS_MAX} removed pages")

    async def _read(self, path: str, name: bytes) -> Record | None:
        try:
            packed = await self._requests.get(path, RECORD_BYTES_MAX, urgent=True)
            return parse_record(packed, name)
        except StoreError as error:
            if error.kind == "missing":  # deleted since it was listed
                return None
            raise
        except Mangled as error:
            # It may be of a removal: nobody may use pages that it would void.
            raise StoreError(
                "other", f"{path} cannot be read as a record of removals: {error}"
            ) from error

    def _take(self, records: list[Record]) -> None:
        """Without a pause: whoever is vouched for the index finds none of these pages in it."""
        digests = b"".join(record.digests for record in records)
        self.digests.update(
            digests[at : at + DIGEST_BYTES] for at in range(0, len(digests), DIGEST_BYTES)
        )
        if digests:
            self._engine.drop_stored(digests)
        self.records += len(records)
        risen = {}
        for record in records:
            if record.epoch > self.floors.get(record.namespace_id, 0):
                risen[record.namespace_id] = self.floors[record.namespace_id] = record.epoch
        for namespace_id, epoch in risen.items():
            self._engine.drop_stored_below(namespace_id, epoch)
        if risen:
            self._epochs.learn(risen.items())

    # --- writers

    async def put(self, record: Record) -> None:
        """Returns when no process uses these pages of the store any more. StoreError if that is not
        sure."""
        packed = record.pack()
        name = name_of(packed)
        time_ms = max(time.time_ns() // 1_000_000, self._newest_ms)
        for _ in range(PUT_AGAIN_MAX):
            path = log_path(FOLDER, time_ms, name)
            await self._requests.put(path, packed, urgent=True)
            put_at = time.monotonic()
            await self._list_from(put_at)
            if self._newest_ms >= time_ms + SLACK_MS:
                time_ms = self._newest_ms
                continue
            if path not in self._known:
                raise StoreError("other", f"the store does not list {path}, which is there")
            await asyncio.sleep(max(put_at + VALID_S - time.monotonic(), 0.0))
            return
        raise StoreError("other", f"clocks of the writers of {FOLDER} run away from each other")

    async def _list_from(self, at: float) -> None:
        """Returns when a listing that began after `at` is complete."""
        while self._valid_until < at + VALID_S:
            await self.look()
