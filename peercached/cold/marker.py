"""The marker of a store: a folder that is not mounted, a wiped bucket or a mistyped prefix must not
pass for an empty store. Removals would go there, and the right store would not hear of them.

    voids/store-MS-ID-CLUSTER    an empty object

MS is the time of the first use in milliseconds, ID a random number, and CLUSTER a keyed hash of the
cluster secret: the store has a marker for each secret. Markers lie beside the records of removals.
So each listing of these also shows whether it is the right store.

A node remembers the marker of its cluster in state_dir, whatever cold_store is, and members tell
each other. The rules:

1. A node uses the store only while the listing has the marker that it remembers.
2. A node that remembers none takes the one that the members remember. If they have none, it takes
   the one that is there. If none is there, it makes one.
3. If its own marker is not there, a node takes the marker of a member, if the store has it.
4. If its marker has gone, a node does not put it back, whatever else is there: it may have written
   that itself. An operator may put it there.
5. If a member remembers an older one that is not there, this node does not use its store: one of
   the two has the wrong store.

Two nodes may both make one at the same time. Then both are there, and either will do.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
import secrets
import time
from collections.abc import Iterable
from typing import Any

from peercached.cold.requests import Requests, StoreError
from peercached.state_file import StateFile, Unreadable

log = logging.getLogger(__name__)

FOLDER = "voids"
FORMAT = 1

NAME = re.compile(rf"{FOLDER}/store-(\d{{13}}-[0-9a-f]{{16}})-([0-9a-f]{{16}})")
MARKER = re.compile(r"\d{13}-[0-9a-f]{16}")


class Marker:
    """On the event loop's thread. `folder`: state_dir. `url`: the key cold_store. A marker is its
    MS-ID here."""

    def __init__(self, folder: str, node_id: str, url: str, cluster_key: bytes) -> None:
        self._file = StateFile(folder, f"store-{node_id}.json", FORMAT)
        self._url = url
        self._cluster = hashlib.blake2b(
            key=cluster_key, person=b"peercached store", digest_size=8
        ).hexdigest()
        self.remembered = self._load()  # empty: none yet
        self.told: dict[str, str] = {}  # by member
        self.members_know = False  # or do not, but they were asked
        self._here: set[str] = set()  # of our secret, in the last listing
        self.is_here = False  # the last listing was of the right store
        self.returns = 0  # how often it came back
        self.others: list[str] = []  # names of older markers of other secrets
        self.problem = self.remedy = ""  # why it is not the right store

    def path_of(self, marker: str) -> str:
        return f"{FOLDER}/store-{marker}-{self._cluster}"

    async def check(self, paths: Iterable[str], requests: Requests) -> bool:
        """Judges the store by a listing of FOLDER. False: a marker was put, so list again.
        StoreError if it is not the right store."""
        markers = [found.groups() for path in paths if (found := NAME.fullmatch(path))]
        self._here = {marker for marker, cluster in markers if cluster == self._cluster}
        if not self.remembered and (told := self._told()):
            await self._remember(told[0])
        try:
            marker = self._judge()
        except StoreError:
            self.is_here = False
            raise
        if marker not in self._here:
            await requests.put(self.path_of(marker), b"", urgent=True)
            log.info("put the marker %s into the object store", self.path_of(marker))
            return False
        self.problem = self.remedy = ""
        if marker != self.remembered:
            await self._remember(marker)
        self.others = [
            f"{FOLDER}/store-{one}-{cluster}"
            for one, cluster in markers
            if cluster != self._cluster and one < marker
        ]
        if not self.is_here:
            self.is_here = True
            self.returns += 1
        return True

    def _judge(self) -> str:
        """The marker that proves the store to be the right one. A new one has to be put there."""
        if self.remembered not in self._here:
            if both := [marker for marker in self._told() if marker in self._here]:
                return both[0]
            if not self.remembered and not self.members_know:
                raise StoreError("other", "no member has told yet which store the cluster uses")
            if not (wanted := self.remembered):
                return min(self._here, default="") or _new()
            raise self._wrong(
                f"it does not have the marker {self.path_of(wanted)} of the store that this node "
                "knows",
                "Mount the folder, or correct cold_store. If this is the right store from now on, "
                f"put an empty object {self.path_of(wanted)} there.",
            )
        for member, marker in self.told.items():
            if marker and marker not in self._here and marker < self.remembered:
                raise self._wrong(
                    f"{member} knows an older store, with the marker {self.path_of(marker)}",
                    "Find out which of the two is right. Is the folder mounted on both nodes?",
                )
        return self.remembered

    def _told(self) -> list[str]:
        """Markers that members remember, the oldest first."""
        return sorted({marker for marker in self.told.values() if marker})

    def _wrong(self, problem: str, remedy: str) -> StoreError:
        if problem != self.problem:
            log.warning("the object store %s is not used: %s", self._url, problem)
        self.problem, self.remedy = problem, remedy
        return StoreError("other", problem)

    # --- members

    def hear(self, member: str, marker: str) -> None:
        """Takes the marker that a member remembers. ValueError if it is none."""
        if marker and not MARKER.fullmatch(marker):
            raise ValueError(f"{member} tells of a store with the marker {marker[:64]!r}")
        self.told[member] = marker
        self.members_know = True

    def keep_only(self, members: Iterable[str]) -> None:
        self.told = {member: self.told[member] for member in members if member in self.told}

    def differs(self, marker: str) -> bool:
        """Whether a member that remembers this one has another store than this node."""
        mine = self._here | {self.remembered}
        return bool(marker and self.remembered) and marker not in mine

    @property
    def strangers(self) -> list[str]:
        """Members with another store."""
        return sorted(member for member, marker in self.told.items() if self.differs(marker))

    # --- state_dir

    def _load(self) -> str:
        try:
            fields = self._file.load(dict) or {}
        except Unreadable as error:
            log.warning("%s: the members tell which object store the cluster uses", error)
            return ""
        is_ours = fields.get("cluster") == self._cluster
        marker = str(fields.get("marker", ""))
        return marker if is_ours and MARKER.fullmatch(marker) else ""

    async def _remember(self, marker: str) -> None:
        self.remembered = marker
        fields: dict[str, Any] = {"cluster": self._cluster, "marker": marker}
        loss = "after a restart it may take another object store for the right one"
        await asyncio.get_running_loop().run_in_executor(
            None, lambda: self._file.save(fields, loss, durable=True)
        )


def _new() -> str:
    return f"{time.time_ns() // 1_000_000:013d}-{secrets.token_hex(8)}"
