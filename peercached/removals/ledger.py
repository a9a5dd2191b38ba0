"""The removals under way at this node, begun by any node. Not thread safe."""

from __future__ import annotations

import struct
from collections import Counter, OrderedDict
from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

from peercached.directory.layout import DIGEST_BYTES

# Keys of the removals under way that one process has begun. It begins no more at itself, so no
# member refuses it because of other drivers. Else drivers could wait for each other for ever.
KEYS_OF_DRIVER_MAX = 1 << 16
# Finished removals that we remember. A late request for a forgotten one is carried out again: pages
# set since then become misses.
OVER_MAX = 1 << 16


@dataclass(frozen=True, slots=True)
class RemovalId:
    incarnation: int  # of the process that began it
    number: int

    @property
    def mark(self) -> int:
        """64 bits that stand for it in journals; never 0."""
        packed = struct.pack("<QQ", self.incarnation, self.number)
        return int.from_bytes(blake2b(packed, digest_size=8).digest(), "little") or 1


NamespaceEpoch = tuple[bytes, int]  # namespace id, epoch


@dataclass(frozen=True, slots=True)
class Wanted:
    """A removal that goes on over restarts of this node."""

    digests: bytes
    epoch: NamespaceEpoch | None  # that the digests are made with; None: not known


@dataclass(frozen=True, slots=True)
class Told:
    """The owners that know of a node that it has dropped the removed pages."""

    view: int = 0  # number of the view that was told; 0: none
    untold: Sequence[str] = ()  # node ids in that view that may still have old records


@dataclass(slots=True)
class Entry:
    id: RemovalId
    digests: bytes
    position: int  # in our journal: the removal's entries begin here or later
    since: float  # monotonic seconds
    drive_at: float  # monotonic seconds: when this node takes over as driver
    epoch: NamespaceEpoch | None = None  # that the digests are made with; None: not known
    has_turn: bool = False  # `drive_at` already includes our turn among the members
    were_here: bytes = b""  # digests of the pages that were here
    kept: bool = False  # the journal has it
    told: Told = Told()  # state when this node carried it out
    reached: int = 0  # our journal's last position then
    begun: bool = False  # this node refuses sets of its keys
    # Incarnations of processes that were out of our view while it ran. They miss it unless they
    # answer.
    away: set[int] = field(default_factory=set)


class Ledger:
    def __init__(self) -> None:
        self.running: dict[RemovalId, Entry] = {}
        self._keys: Counter[int] = (
            Counter()
        )  # of removals that run, by the incarnation that began them
        self._over: OrderedDict[RemovalId, None] = OrderedDict()

    def is_over(self, id: RemovalId) -> bool:
        return id in self._over

    def begin(self, entry: Entry) -> None:
        """OverflowError if too many of that driver are under way."""
        keys = self._keys[entry.id.incarnation] + len(entry.digests) // DIGEST_BYTES
        if keys > KEYS_OF_DRIVER_MAX:
            raise OverflowError(
                f"{keys} keys: one node removes at most {KEYS_OF_DRIVER_MAX} at a time"
            )
        self._keys[entry.id.incarnation] = keys
        self.running[entry.id] = entry

    def withdraw(self, id: RemovalId) -> Entry | None:
        """As if it had never begun."""
        entry = self.running.pop(id, None)
        if entry is not None:
            self._keys[id.incarnation] -= len(entry.digests) // DIGEST_BYTES
            self._keys += Counter()  # forgets drivers without any
        return entry

    def end(self, id: RemovalId) -> Entry | None:
        """Marks the removal as over. Returns its entry, or None if it does not run here."""
        entry = self.withdraw(id)
        if entry is not None:
            self._over[id] = None
            if len(self._over) > OVER_MAX:
                self._over.popitem(last=False)
        return entry

    def may_be_missed(self, driven: Container[RemovalId]) -> dict[int, int]:
        """By incarnation: position of the first removal under way that this process may miss. Those
        `driven` here do not count: before we say that one is complete, we note who missed it."""
        first: dict[int, int] = {}
        for entry in self.running.values():
            if entry.id not in driven:
                for incarnation in entry.away:
                    first.setdefault(incarnation, entry.position)
        return first
