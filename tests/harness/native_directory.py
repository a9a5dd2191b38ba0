"""The directory's part of a data plane: native tables of one node, without an Engine.

A mixin for fake_engine.py. In the engine a janitor thread sweeps the records of a dropped node.
Here the sweep happens at once, or through shard_sweep() if `swept_at_once` is false.
"""

from __future__ import annotations

from typing import Any

from harness.fake_rows import ROW, unpack_rows
from harness.shared_rings import RingTable
from peercached import _native

SWEEP_RECORDS = 4096
# Entries reserved in the table's address space; unused ones cost no memory.
SHARD_CAPACITY = 1 << 20


class NativeDirectory:
    def __init__(self, shard_capacity: int = SHARD_CAPACITY) -> None:
        self.swept_at_once = True
        self.nodes: dict[int, tuple[str, int]] = {}
        self.ring: RingTable | None = None
        self.shard_final = False
        self.kept_final = 0
        self.open_owners: dict[int, bool] = {}
        self._numbers = _native.NodeTable("this node", 0)
        self._known: set[bytes] = set()  # digests that may have records
        self._new_shard(shard_capacity)

    def _new_shard(self, capacity: int) -> None:
        self._shard_capacity = capacity
        self._table = _native.ShardTable(capacity)
        for holder in (0, *self.nodes):
            self._table.add_holder(holder)

    # --- for tests

    @property
    def shard(self) -> dict[tuple[bytes, int], tuple[Any, ...]]:
        """(digest, holder) -> record. The table names at most three holders of a digest."""
        rows = unpack_rows(self._table.lookup(b"".join(sorted(self._known))))
        return {(row[0], row[5]): row for row in rows}

    @property
    def shard_capacity(self) -> int:
        return self._shard_capacity

    @shard_capacity.setter
    def shard_capacity(self, capacity: int) -> None:
        records = self.shard
        self._new_shard(capacity)
        for (_, holder), row in records.items():
            self._table.apply(holder, ROW.pack(*row))

    def lose_records(self) -> None:
        self._new_shard(self._shard_capacity)

    # --- nodes and ring

    def add_node(self, node_id: str, incarnation: int) -> int:
        index, new = self._numbers.add(node_id, incarnation, self._table)
        if new:
            self._table.add_holder(index)
            self.nodes[index] = (node_id, incarnation)
        return index

    def drop_node(self, index: int) -> None:
        del self.nodes[index]
        self._numbers.drop(index)
        self._table.drop_holder(index)
        while self.swept_at_once and self.shard_sweep(SWEEP_RECORDS):
            pass

    def set_ring(self, positions: bytes, nodes: bytes, replicas: int, view_number: int = 0) -> None:
        self.ring = RingTable(positions, nodes, replicas)
        self.open_owners.clear()

    def set_shard_final(self, final: bool, view_number: int) -> None:
        self.shard_final = final

    fence = 0

    def open_owner(self, index: int, is_open: bool) -> None:
        self.open_owners[index] = is_open

    def raise_fence(self, holder: int, fence: int) -> None: ...
    def keep_final(self, ms: int) -> None:
        self.kept_final += 1

    def _ring(self) -> RingTable:
        assert self.ring is not None
        return self.ring

    def split(self, items: bytes, stride: int, first_only: bool = False) -> list[tuple[int, bytes]]:
        return self._ring().split(items, stride, first_only)

    def owners(self, digest: bytes) -> list[int]:
        return self._ring().owners(digest)

    def ring_shares(self, owners: int = 1) -> list[tuple[int, float]]:
        return self._ring().shares(owners)

    # --- shard

    def _note(self, rows: bytes) -> None:
        self._known.update(row[0] for row in unpack_rows(rows))

    def shard_apply(self, holder: int, rows: bytes) -> tuple[int, int, int, int, int]:
        assert holder == 0 or holder in self.nodes
        self._note(rows)
        return self._table.apply(holder, rows)

    def shard_lookup(self, digests: bytes) -> bytes:
        return self._table.lookup(digests)

    def shard_summary(self, holder: int) -> bytes:
        ring = self._ring()
        return self._table.summary(holder, ring.shared, ring.rank)

    def shard_replace(
        self, holder: int, bucket: int, as_of: int, rows: bytes
    ) -> tuple[int, int, int, int, int]:
        ring = self._ring()
        self._note(rows)
        return self._table.replace(holder, bucket, as_of, rows, ring.shared, ring.rank)

    def shard_trim(self) -> int:
        ring = self._ring()
        return self._table.trim(ring.shared, ring.rank)

    def shard_sweep(self, records: int) -> int:
        return self._table.sweep(records)
