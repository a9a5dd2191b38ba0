"""The daemon's rings over native tables, with one table shared by all nodes with equal members.

The rings of two nodes differ only in their holder indices. A thousand separate rings with 160
positions a node would leave no memory for pages. So `build_ring` packs no positions. It packs the
name of a shared table, and this node's index of each member.
"""

from __future__ import annotations

import struct
from array import array
from collections import deque
from collections.abc import Mapping
from functools import cached_property, lru_cache
from hashlib import blake2b
from typing import Protocol
from weakref import WeakValueDictionary

from peercached import _native
from peercached.directory.ring import Ring, vnodes_of

NOBODY = 0xFFFF
Members = tuple[tuple[str, int], ...]  # sorted (node id, pool size in bytes)
Parts = list[tuple[int, bytes]]


class _Lookup(Protocol):
    def owners(self, digest: bytes) -> list[int]: ...
    def split(self, items: bytes, stride: int, first_only: bool = False) -> Parts: ...


class _Table:
    """A native ring that numbers the nodes by their rank among the members."""

    def __init__(self, members: Members) -> None:
        self.members = members
        ranks = {node_id: rank for rank, (node_id, _) in enumerate(members)}
        # Building a ring of one node would make the shared builder forget all other positions.
        builder = _builder if len(members) > 1 else Ring()
        self._packed = builder.build(ranks, weights=dict(members))
        self._by_replicas: dict[int, _native.RingTable] = {}

    def native(self, replicas: int) -> _native.RingTable:
        found = self._by_replicas.get(replicas)
        if found is None:
            found = self._by_replicas[replicas] = _native.RingTable(*self._packed, replicas)
        return found

    @cached_property
    def vnodes(self) -> dict[str, int]:
        return vnodes_of(dict(self.members))


class _AllButOne:
    """A shared table without one member, provided that its removal changes no other positions. A
    node that was on its own takes it for the former ring."""

    def __init__(self, table: _Table, rank: int) -> None:
        self.table, self.rank = table, rank

    def native(self, replicas: int) -> _Passing:
        return _Passing(self.table.native(replicas + 1), self.rank, replicas)


class _Passing:
    def __init__(self, ring: _native.RingTable, passed: int, replicas: int) -> None:
        self._ring, self._passed, self._replicas = ring, passed, replicas

    def owners(self, digest: bytes) -> list[int]:
        ranks = [rank for rank in self._ring.owners(digest) if rank != self._passed]
        return [rank - (rank > self._passed) for rank in ranks[: self._replicas]]

    def split(self, items: bytes, stride: int, first_only: bool = False) -> Parts:
        parts: dict[int, list[bytes]] = {}
        for at in range(0, len(items), stride):
            item = items[at : at + stride]
            owners = self.owners(item[:16])
            for owner in owners[:1] if first_only else owners:
                parts.setdefault(owner, []).append(item)
        return [(owner, b"".join(part)) for owner, part in parts.items()]


_tables: WeakValueDictionary[bytes, _Table | _AllButOne] = WeakValueDictionary()
_latest: deque[_Table] = deque(maxlen=8)
_builder = Ring()


@lru_cache(maxsize=32)
def _named(members: Members, of_others: bool) -> tuple[bytes, _Table | _AllButOne]:
    name = blake2b(repr((members, of_others)).encode(), digest_size=16).digest()
    found = _tables.get(name)
    if found is None:
        found = (_all_but_one(members) if of_others else None) or _Table(members)
        _tables[name] = found
        if isinstance(found, _Table) and not of_others:
            _latest.append(found)
    return name, found


def _all_but_one(members: Members) -> _AllButOne | None:
    for table in _latest:
        if len(table.members) != len(members) + 1:
            continue
        pairs = enumerate(zip(members, table.members, strict=False))
        rank = next((at for at, (one, other) in pairs if one != other), len(members))
        if members[rank:] == table.members[rank + 1 :]:
            vnodes = vnodes_of(dict(members))
            if all(table.vnodes[node_id] == count for node_id, count in vnodes.items()):
                return _AllButOne(table, rank)
    return None


def build_ring(
    members: Mapping[str, int], pool_bytes: Mapping[str, int] | None = None
) -> tuple[bytes, bytes]:
    """A placement.RingBuilder. Only `RingTable` below understands its result."""
    sizes = pool_bytes or {}
    ids = sorted(members)
    indices = [members[node_id] for node_id in ids]
    name, _ = _named(tuple((node_id, sizes.get(node_id, 0)) for node_id in ids), 0 not in indices)
    return name, struct.pack(f"<{len(ids)}H", *indices)


class RingTable:
    """Replaces the native RingTable for the output of `build_ring`."""

    def __init__(self, name: bytes, nodes: bytes, replicas: int) -> None:
        self._table = _tables[name]
        self._lookup: _Lookup = self._table.native(replicas)
        self._indices = array("H", nodes)
        self.rank = self.rank_of(0)  # this node's

    @property
    def shared(self) -> _native.RingTable:
        """The native table of a ring that includes this node."""
        assert isinstance(self._lookup, _native.RingTable)
        return self._lookup

    def rank_of(self, index: int) -> int:
        return self._indices.index(index) if index in self._indices else NOBODY

    def owners(self, digest: bytes) -> list[int]:
        return [self._indices[rank] for rank in self._lookup.owners(digest)]

    def split(self, items: bytes, stride: int, first_only: bool = False) -> Parts:
        parts = self._lookup.split(items, stride, first_only)
        return [(self._indices[rank], part) for rank, part in parts]

    def shares(self, owners: int = 1) -> list[tuple[int, float]]:
        return [(self._indices[rank], share) for rank, share in self.shared.shares(owners)]

    def summaries(self, rows: bytes) -> dict[int, bytes]:
        return {self._indices[rank]: s for rank, s in self.shared.summaries(rows).items()}

    def rows_of(self, rows: bytes, owner: int, buckets: bytes) -> bytes:
        return self.shared.rows_of(rows, self.rank_of(owner), buckets)
