"""The removals that are under way at this node, whoever began them. Not thread safe."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

# Of removals that are over. Who is told late of one that is not remembered carries it out again:
# pages that were set since are gone then, and misses.
OVER_MAX = 1 << 16


@dataclass(frozen=True, slots=True)
class RemovalId:
    incarnation: int  # of the process that began it
    number: int


@dataclass(slots=True)
class Entry:
    id: RemovalId
    digests: bytes
    position: int  # in our journal: its entries are there or behind
    since: float  # monotonic seconds
    drive_at: float  # when this node drives it on, if nobody else has ended it
    has_turn: bool = False  # among those who may do so
    held: bytes = b""  # digests that were here
    kept: bool = False  # written down
    # Node ids of owners that may still name this node for it, of the members of view `told_in`.
    untold: list[str] = field(default_factory=list)
    told_in: int = 0  # number of that view; 0: not asked yet
    reached: int = 0  # position of the last entry in our journal then
    begun: bool = False  # new pages of its keys are kept out here


class Ledger:
    def __init__(self) -> None:
        self.running: dict[RemovalId, Entry] = {}
        self._over: OrderedDict[RemovalId, None] = OrderedDict()

    def is_over(self, id: RemovalId) -> bool:
        return id in self._over

    def end(self, id: RemovalId) -> Entry | None:
        """The entry, if it ran here."""
        self._over[id] = None
        if len(self._over) > OVER_MAX:
            self._over.popitem(last=False)
        return self.running.pop(id, None)

    @property
    def running_from(self) -> int:
        return min((entry.position for entry in self.running.values()), default=0)
