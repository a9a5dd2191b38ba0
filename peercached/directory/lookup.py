"""One lookup: chooses the owners to ask, and decides when a miss is final.

All owners of a digest keep the same records. A call costs far more than a digest in it. So a lookup
asks as few owners as possible, and never a suspect.

An owner marks its answer as final if it is in sync with all members of the caller's view and has
refused no record. Then a digest without a record is a miss. If the answer is not final, the digests
without a readable holder fall through. That means: the lookup asks all their other owners, and the
owners by former views, in parallel. If an owner fails, all digests of that call fall through. So do
digests whose owners are all suspect.

An owner is overdue if it takes longer than usual (patience.py). Its digests fall through as if it
had failed, but its answer still counts if it comes before the lookup ends. The lookup stops waiting
for it when the others have settled all its digests.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from peercached.directory.layout import (
    DIGEST_BYTES,
    NO_HOLDER,
    ROW_BYTES,
    SELF,
    holders_of,
    pack_mapping,
)
from peercached.directory.native import Native
from peercached.directory.owner import OwnerSide
from peercached.directory.placement import Node, Placement

if TYPE_CHECKING:
    from peercached._native import Engine


# Records of one digest in an answer: the most that a shard keeps (native/shard/shard.h).
ROWS_PER_DIGEST_MAX = 3
# Overdue lookups at one owner, above which it gets no more until one ends.
OVERDUE_MAX = 16


@dataclass(frozen=True, slots=True, eq=False)
class Ask:
    """A call to one owner. `tried`: all owners asked for these digests so far. `former`: it owned
    them in an earlier view only, so its misses are never final."""

    owner: int
    digests: bytes
    tried: frozenset[int]
    former: bool = False


@dataclass(slots=True)
class LookupCounters:
    lookups: int = 0
    asked: int = 0  # RPCs to owners
    fell_through: int = 0  # groups of digests that needed other owners
    overdue: int = 0  # owners that took too long, so that others were asked
    foreign_holders: int = 0  # holders in answers that are not in our view


class Lookup:
    """Sans-I/O; not thread safe. start(), answered(), failed() and overdue() return the calls to
    make next. The lookup ends when it is `settled`, or at the caller's deadline."""

    def __init__(
        self,
        engine: Engine,
        native: Native,
        placement: Placement,
        owner_side: OwnerSide,
        counters: LookupCounters,
        digests: bytes,
        now: float,
    ) -> None:
        self._engine = engine
        self._native = native
        self._placement = placement
        self._owner_side = owner_side
        self._counters = counters
        self._digests = digests
        self._now = now
        # Rows, and the node of each holder index in them.
        self._found: list[tuple[bytes, dict[int, Node]]] = []
        self._overdue: dict[Ask, bytes] = {}  # digests that no other owner has settled
        self.outstanding = 0

    def start(self) -> list[Ask]:
        self._counters.lookups += 1
        asks: list[Ask] = []
        remaining = self._digests
        while remaining:
            chosen = self._largest(self._engine.split(remaining, DIGEST_BYTES))
            if chosen is None:
                # All owners of these are suspect. Nodes that return together may be the only owners
                # now, but the former owners still have the records.
                asks += self._elsewhere(remaining, frozenset())
                break
            owner, part = chosen
            asks += self._ask(Ask(owner, part, frozenset((owner,))))
            if len(part) == len(remaining):
                break
            remaining = self._native.missing(remaining, part, DIGEST_BYTES)
        return asks

    def _largest(self, parts: list[tuple[int, bytes]]) -> tuple[int, bytes] | None:
        """The owner of the most digests. Prefers ourselves (no call), then owners that are not
        overdue."""
        best: tuple[int, bytes] | None = None
        best_rank = (False, 0)
        for owner, part in parts:
            if not self._may_ask(owner):
                continue
            if owner == SELF:
                return owner, part
            rank = (not self._placement.nodes[owner].overdue, len(part))
            if best is None or rank > best_rank:
                best, best_rank = (owner, part), rank
        return best

    def _may_ask(self, owner: int) -> bool:
        node = self._placement.nodes.get(owner)
        return node is not None and not node.suspect and node.overdue < OVERDUE_MAX

    def answered(
        self, ask: Ask, rows: bytes, holders: list[tuple[str, int]], final: bool
    ) -> list[Ask]:
        """`holders`: (node id, incarnation) by the holder number in `rows`. Raises ValueError, and
        changes nothing, if the rows have other holder numbers, or if the answer is longer than
        the question allows."""
        count = len(rows) // ROW_BYTES
        if count > ROWS_PER_DIGEST_MAX * (len(ask.digests) // DIGEST_BYTES) or len(holders) > count:
            raise ValueError(
                f"{count} records of {len(holders)} holders for "
                f"{len(ask.digests) // DIGEST_BYTES} digests"
            )
        mapping: dict[int, int] = {}
        named: dict[int, Node] = {}
        for number, (node_id, incarnation) in enumerate(holders):
            node = self._placement.find(node_id, incarnation)
            mapping[number] = NO_HOLDER
            if node is None:
                self._counters.foreign_holders += 1
            else:
                mapping[number] = node.index
                named[node.index] = node
        mapped = self._native.map_rows(rows, pack_mapping(mapping))
        self.outstanding -= 1
        return self._take(ask, mapped, named, final)

    def failed(self, ask: Ask) -> list[Ask]:
        self.outstanding -= 1
        if self._overdue.pop(ask, None) is not None:
            return []  # overdue() has already asked the others
        return self._elsewhere(ask.digests, ask.tried)

    def overdue(self, ask: Ask) -> list[Ask]:
        """The call takes long: ask others. The caller must still report answered() or failed(),
        unless the lookup is `settled` before."""
        self._counters.overdue += 1
        self._overdue[ask] = ask.digests
        return self._elsewhere(ask.digests, ask.tried)

    @property
    def settled(self) -> bool:
        """Whether all calls have ended, except overdue ones that others have made superfluous."""
        return self.outstanding == len(self._overdue) and not any(self._overdue.values())

    def rows(self) -> bytes:
        """All records found. Drops holders that left the view meanwhile: a new node may have their
        index now."""
        parts = [self._still_there(rows, named) for rows, named in self._found]
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _still_there(self, rows: bytes, named: dict[int, Node]) -> bytes:
        nodes = self._placement.nodes
        if all(nodes.get(index) is node for index, node in named.items()):
            return rows
        kept = {i: i if nodes.get(i) is node else NO_HOLDER for i, node in named.items()}
        return self._native.map_rows(rows, pack_mapping(kept))

    def _take(self, ask: Ask, rows: bytes, named: dict[int, Node], final: bool) -> list[Ask]:
        final = final and not ask.former
        if rows:
            self._found.append((rows, named))
        was_overdue = self._overdue.pop(ask, None) is not None
        for other, open_ in self._overdue.items():
            self._overdue[other] = (
                self._native.missing(open_, ask.digests, DIGEST_BYTES)
                if final
                else self._native.missing(open_, rows, ROW_BYTES)
            )
        if final or was_overdue:
            return []  # if it was overdue, overdue() has already asked the others
        readable = self._readable(rows, named)
        missing = self._native.missing(ask.digests, readable, ROW_BYTES)
        return self._elsewhere(missing, ask.tried) if missing else []

    def _readable(self, rows: bytes, named: dict[int, Node]) -> bytes:
        """Rows of readable holders. Not ourselves: we have evicted the page. No suspects: another
        owner may know a live holder."""
        silent = {i for i, node in named.items() if i == SELF or node.suspect}
        if not silent:
            return rows
        kept = {i: NO_HOLDER if i in silent else i for i in named}
        return self._native.map_rows(rows, pack_mapping(kept))

    def _ask(self, ask: Ask) -> list[Ask]:
        owner, digests = ask.owner, ask.digests
        if owner != SELF:
            self.outstanding += 1
            self._counters.asked += 1
            return [ask]
        rows = self._engine.shard_lookup(digests)
        final = self._owner_side.final(self._placement.view.number)
        nodes = self._placement.nodes
        named = {index: nodes[index] for index in holders_of(rows) if index in nodes}
        return self._take(ask, rows, named, final)

    def _elsewhere(self, digests: bytes, tried: frozenset[int]) -> list[Ask]:
        self._counters.fell_through += 1
        # Ask a node only once for the same digests, even if it is also a former owner.
        asked: dict[tuple[int, bytes], bool] = {}
        for owner, part in self._engine.split(digests, DIGEST_BYTES):
            asked[owner, part] = False
        for owner, part in self._placement.former_owners(digests, self._now):
            asked.setdefault((owner, part), True)
        chosen = [
            (owner, part, former)
            for (owner, part), former in asked.items()
            if owner not in tried and self._may_ask(owner)
        ]
        everybody = tried | {owner for owner, _, _ in chosen}
        asks: list[Ask] = []
        for owner, part, former in chosen:
            asks += self._ask(Ask(owner, part, everybody, former))
        return asks
