"""Fills the data plane's index of the store from the manifests of objects.

A manifest that is read late, or never, costs misses only. So a listing begins SLACK_MS before the
newest name that is known here, and clocks that are farther off hide objects.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from peercached.cold.format import (
    INDEX_BYTES_MAX,
    Index,
    Mangled,
    log_path,
    of_log_path,
    parse_index,
)
from peercached.cold.requests import Requests, StoreError
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


class Manifests:
    """On the event loop's thread."""

    def __init__(self, engine: Engine, requests: Requests, voids: Voids) -> None:
        self._engine = engine
        self._requests = requests
        self._voids = voids
        self._known: dict[str, int] = {}  # names of manifests, and their times
        self._objects: set[bytes] = set()  # all that were ever found
        self._newest_ms = 0
        self.bytes = 0  # of the payloads of these objects
        self.foreign = self.mangled = self.left_out = 0

    async def read_new(self) -> None:
        """StoreError if the store does not answer."""
        after_ms = max(self._newest_ms - SLACK_MS, 0)
        after = log_path(FOLDER, after_ms, bytes(DIGEST_BYTES)) if after_ms else ""
        paths = await self._requests.names(FOLDER, after, NAMES_MAX)
        new = [path for path in paths if path not in self._known]
        for at in range(0, len(new), READ_AT_ONCE):
            await asyncio.gather(*(self._read(path) for path in new[at : at + READ_AT_ONCE]))
        for path in [path for path, time_ms in self._known.items() if time_ms < after_ms]:
            del self._known[path]

    async def _read(self, path: str) -> None:
        of = of_log_path(FOLDER, path)
        if of is None:
            self._known[path] = self._newest_ms
            self.foreign += 1
            return
        time_ms, name = of
        try:
            if name not in self._objects:
                packed = await self._requests.get(path, INDEX_BYTES_MAX)
                self.take(name, parse_index(packed, name))
        except Mangled:
            self.mangled += 1
        except StoreError as error:
            if error.kind != "missing":
                raise
        self._known[path] = time_ms
        self._newest_ms = max(self._newest_ms, time_ms)

    def take(self, name: bytes, index: Index) -> None:
        """Puts the pages of an object into the data plane's index, but no void ones."""
        if name in self._objects:
            return
        if len(self._objects) >= NAMES_MAX:
            self.left_out += 1
            return
        self._objects.add(name)
        self.bytes += index.payload_bytes
        if index.epoch < self._voids.floors.get(index.namespace_id, 0):
            return
        entries = index.entries
        if void := self._voids.digests.intersection(index.digests):
            entries = b"".join(entry for entry in index.each if entry[:DIGEST_BYTES] not in void)
        if not self._engine.add_object(name, index.namespace_id, index.epoch, entries):
            self.left_out += 1
