"""The removals that are under way at this node, whoever began them. Not thread safe."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

# Of removals that are over. Who is told late of one that is not remembered carries it out again:
# pages that were set since are gone then, and misses.
OVER_MAX = 1 << 16


@dataclass(frozen=True, slots=True)
class RemovalId:
    incarnation: int  # of the process that began it
    number: int


@dataclass(frozen=True, slots=True)
class Told:
    """Who may still name a node for what it has removed."""

    view: int = 0  # the number of the view whose members were told; 0: none
    untold: Sequence[str] = ()  # node ids of those of them that may have something of before


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
    told: Told = Told()  # when it was carried out
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
