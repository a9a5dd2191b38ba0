"""Fills the data plane's index of the store from the manifests of objects.

A manifest that is read late, or never, costs misses only. So a listing begins SLACK_MS before the
newest name that is known here, and clocks that are farther off hide objects until the next complete
listing. That one comes now and then, and forgets objects that have gone.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from peercached.cold.format import (
    ENTRY,
    INDEX_BYTES_MAX,
    NO_SEAL,
    OWN_HOME,
    Index,
    Mangled,
    OtherKey,
    log_path,
    object_path,
    of_log_path,
    parse_index,
    split,
)
from peercached.cold.requests import Requests, StoreError
from peercached.cold.sealing import NoSeal
from peercached.cold.voids import Voids
from peercached.directory.layout import DIGEST_BYTES

if TYPE_CHECKING:
    from peercached._native import Engine

log = logging.getLogger(__name__)

FOLDER = "manifests"
SLACK_MS = 600_000
# Names in the store; beyond that it is not read. The data plane bounds objects and pages.
NAMES_MAX = 1 << 17
READ_AT_ONCE = 16
COMPLETE_S = 600.0


@dataclass(slots=True)
class Stored:
    """An object as its manifest describes it."""

    path: str  # of the manifest
    made_ms: int
    namespace_id: bytes
    epoch: int
    generation: int
    home: bytes  # the object under pages/ with the payloads
    payload_bytes: int
    page_bytes: int
    is_indexed: bool  # its live pages are in the data plane's index

    @property
    def home_path(self) -> str:
        return object_path(self.namespace_id, self.epoch, self.home)


class Manifests:
    """On the event loop's thread."""

    def __init__(
        self, engine: Engine, requests: Requests, voids: Voids, seal: NoSeal = NO_SEAL
    ) -> None:
        self._engine = engine
        self._seal = seal
        self._requests = requests
        self._voids = voids
        self._known: dict[str, int] = {}  # names of manifests, and their times
        self.objects: dict[bytes, Stored] = {}  # by name
        self._homes: Counter[bytes] = Counter()  # name under pages/ -> manifests
        self._of_other_keys: dict[str, int] = {}  # paths of others, bytes of their payloads
        self._newest_ms = 0
        self._complete_at = float("-inf")
        self._floors_raised = self._returns = 0
        self.bytes = 0  # of the payloads of these objects
        self.foreign = self.mangled = self.left_out = 0

    @property
    def other_keys(self) -> int:
        """Objects with the seal of another key, or without one, or with one that we do not want."""
        return len(self._of_other_keys)

    @property
    def other_keys_bytes(self) -> int:
        return sum(self._of_other_keys.values())

    async def read_new(self) -> None:
        """StoreError if the store does not answer. After a compaction the listing is complete: its
        manifests may have come while this node did not look. While the store was away, its objects
        looked gone."""
        if self._voids.marker.returns != self._returns:
            self._returns = self._voids.marker.returns
            self._forget_all()
        is_due = time.monotonic() - self._complete_at >= COMPLETE_S
        await self.read(is_due or self._voids.floors_raised != self._floors_raised)

    async def read(self, is_complete: bool) -> None:
        began, raised, before = time.monotonic(), self._voids.floors_raised, dict(self.objects)
        after_ms = 0 if is_complete else max(self._newest_ms - SLACK_MS, 0)
        after = log_path(FOLDER, after_ms, bytes(DIGEST_BYTES)) if after_ms else ""
        paths = await self._requests.names(FOLDER, after, NAMES_MAX)
        if is_complete:
            there = set(paths)
            gone = (name for name, one in before.items() if one.path not in there)
            self.forget([name for name in gone if self.objects.get(name) is before[name]])
            self._known = {path: ms for path, ms in self._known.items() if path in there}
            for path in [path for path in self._of_other_keys if path not in there]:
                self.bytes -= self._of_other_keys.pop(path)
        new = [path for path in paths if path not in self._known]
        for at in range(0, len(new), READ_AT_ONCE):
            await asyncio.gather(*(self._read(path) for path in new[at : at + READ_AT_ONCE]))
        for path in [path for path, time_ms in self._known.items() if time_ms < after_ms]:
            del self._known[path]
        if is_complete:
            self._complete_at, self._floors_raised = began, raised

    async def _read(self, path: str) -> None:
        of = of_log_path(FOLDER, path)
        if of is None:
            self._known[path] = self._newest_ms
            self.foreign += 1
            return
        time_ms, name = of
        try:
            if name not in self.objects:
                packed = await self._requests.get(path, INDEX_BYTES_MAX)
                self.take(path, name, parse_index(packed, name, self._seal))
        except OtherKey as error:
            if path not in self._of_other_keys and self.other_keys < NAMES_MAX:
                self._of_other_keys[path] = error.payload_bytes
                self.bytes += error.payload_bytes
        except Mangled:
            self.mangled += 1
        except StoreError as error:
            if error.kind != "missing":
                raise
        self._known[path] = time_ms
        self._newest_ms = max(self._newest_ms, time_ms)

    def take(self, path: str, name: bytes, index: Index) -> None:
        """Puts the pages of an object into the data plane's index, but no void ones."""
        if name in self.objects:
            return
        if len(self.objects) >= NAMES_MAX:
            self.left_out += 1
            return
        of = of_log_path(FOLDER, path)
        home = name if index.home == OWN_HOME else index.home
        stored = self.objects[name] = Stored(
            path,
            index.made_ms or (of[0] if of else 0),
            index.namespace_id,
            index.epoch,
            index.generation,
            home,
            index.payload_bytes,
            sum(length for _, _, _, length in ENTRY.iter_unpack(index.entries)),
            is_indexed=True,
        )
        self._homes[home] += 1
        if self._homes[home] == 1:
            self.bytes += index.payload_bytes
        where = (index.namespace_id, *index.position)
        if self._voids.is_below(*where):
            return
        entries = self._voids.live(index)
        if entries and not self._engine.add_object(name, home, *where, entries):
            stored.is_indexed = False
            self.left_out += 1

    def live_bytes(self) -> dict[bytes, int]:
        """Of each object's pages: bytes that a reader may find there."""
        return dict(self._engine.stored_objects())

    def live(self, name: bytes, index: Index) -> bytes:
        """The entries of an object that a reader may find there; empty if it is gone."""
        entries = self._voids.live(index) if name in self.objects else b""
        if not entries or not self.objects[name].is_indexed:
            return entries
        digests = b"".join(entry[:DIGEST_BYTES] for entry in split(entries))
        return self._engine.stored_in(name, digests)

    def forget(self, names: list[bytes]) -> None:
        """These objects are not in the store any more. A listing and the sweeper both say so."""
        for name in names:
            if (stored := self.objects.pop(name, None)) is None:
                continue
            self._known.pop(stored.path, None)
            self._homes[stored.home] -= 1
            if not self._homes[stored.home]:
                del self._homes[stored.home]
                self.bytes -= stored.payload_bytes
        if names:
            self._engine.drop_objects(b"".join(names))

    def _forget_all(self) -> None:
        self.forget(list(self.objects))
        self._known.clear()
        self._of_other_keys.clear()
        self.bytes = 0
        self._complete_at = float("-inf")

    def has_home(self, home: bytes) -> bool:
        """Whether some manifest is of the payloads of that object."""
        return home in self._homes
