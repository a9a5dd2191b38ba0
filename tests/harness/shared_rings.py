"""The daemon's rings over native tables, with one table shared by all nodes with equal members.

The rings of two nodes differ only in their holder indices. A thousand separate rings with 160
positions a node would leave no memory for pages. So `build_ring` packs no positions. It packs the
name of a shared table, and this node's index of each member.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b
from weakref import WeakValueDictionary

from peercached import _native
from peercached.directory.ring import Ring

Members = tuple[tuple[str, int], ...]  # sorted (node id, pool size in bytes)


class _Table:
    """A native ring that numbers the nodes by their rank among the members."""

    def __init__(self, members: Members) -> None:
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


_tables: WeakValueDictionary[bytes, _Table] = WeakValueDictionary()
_builder = Ring()


@lru_cache(maxsize=32)
def _named(members: Members) -> tuple[bytes, _Table]:
    name = blake2b(repr(members).encode(), digest_size=16).digest()
    found = _tables.get(name)
    if found is None:
        found = _tables[name] = _Table(members)
    return name, found


def build_ring(
    members: Mapping[str, int], pool_bytes: Mapping[str, int] | None = None
) -> tuple[bytes, bytes]:
    """A placement.RingBuilder. Only `RingTable` below understands its result."""
    sizes = pool_bytes or {}
    ids = sorted(members)
    indices = [members[node_id] for node_id in ids]
    name, _ = _named(tuple((node_id, sizes.get(node_id, 0)) for node_id in ids))
    return name, struct.pack(f"<{len(ids)}H", *indices)


class RingTable:
    """Replaces the native RingTable for the output of `build_ring`."""

    def __init__(self, name: bytes, nodes: bytes, replicas: int) -> None:
        self._table = _tables[name]
        self.shared = self._table.native(replicas)
        self._indices = array("H", nodes)

    def owners(self, digest: bytes) -> list[int]:
        return [self._indices[rank] for rank in self.shared.owners(digest)]

    def shares(self, owners: int = 1) -> list[tuple[int, float]]:
        return [(self._indices[rank], share) for rank, share in self.shared.shares(owners)]
