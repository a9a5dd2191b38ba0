"""The removals that this node drives (driver.py)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from peercached.directory.layout import DIGEST_BYTES
from peercached.removals.ledger import Entry, NamespaceEpoch, RemovalId
from peercached.removals.processes import Process


@dataclass(slots=True)
class Open:
    """A removal that this node drives."""

    id: RemovalId
    digests: bytes
    began: float  # monotonic seconds
    epoch: NamespaceEpoch | None  # that the digests are made with; None: not known
    # A worker waits for it. After a clear it removes the same keys in the new epoch instead.
    is_waited_for: bool = False
    cleared: bool = False  # a clear raised the epoch, so the keys have other digests now
    were_here: set[bytes] = field(default_factory=set)  # digests that some member had
    # Members that carried it out: incarnation -> (its journal position, monotonic seconds).
    carried_out: dict[int, tuple[int, float]] = field(default_factory=dict)
    # Members that have also told all owners, by incarnation: journal position, view number.
    answered: dict[int, int] = field(default_factory=dict)
    told_in: dict[int, int] = field(default_factory=dict)
    reached: int = 0  # our own journal position
    settled: bool = False  # a member that carried it out owes nobody
    silent: dict[tuple[str, int], Process] = field(default_factory=dict)
    highest_view: int = 0  # that any member named
    kept: bool = True  # our journal has it
    waits_for_store: bool = False  # the object store does not have it yet
    store_failure: str = ""  # why not
    missing: dict[str, str] = field(default_factory=dict)  # node id -> why it has not answered
    news: asyncio.Event = field(default_factory=asyncio.Event)  # a new view, or it is over
    done: asyncio.Event = field(default_factory=asyncio.Event)


class OpenRemovals(dict[RemovalId, Open]):
    def completed(self, entry: Entry) -> None:
        """A removal is complete, whoever drove it. So earlier removals of its pages soon are."""
        digests = set(split(entry.digests))
        for one in self.values():
            if one.digests[:DIGEST_BYTES] in digests and digests.issuperset(split(one.digests)):
                one.news.set()


def split(packed: bytes) -> list[bytes]:
    return [packed[at : at + DIGEST_BYTES] for at in range(0, len(packed), DIGEST_BYTES)]
