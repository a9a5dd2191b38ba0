"""The directory's part of a data plane: holder indices and the ring of one node, without an Engine.

A mixin for fake_engine.py. Here every node knows at once what the other engines of this process
hold. The simulator's engine has the real protocol instead (sim/record_log.py).
"""

from __future__ import annotations

from weakref import WeakValueDictionary

from harness.fake_rows import ROW, unpack_rows
from harness.shared_rings import RingTable
from peercached import _native

# By incarnation.
_engines: WeakValueDictionary[int, NativeDirectory] = WeakValueDictionary()


def held_by(rows: bytes, holder: int) -> bytes:
    """The rows with this index of their holder."""
    return b"".join(ROW.pack(*row[:5], holder, row[6]) for row in unpack_rows(rows))


class NativeDirectory:
    def __init__(self) -> None:
        self.nodes: dict[int, tuple[str, int]] = {}
        self.ring: RingTable | None = None
        self.view_number = 0
        self.patience_ms = 0
        self._numbers = _native.NodeTable("this node", 0)

    def runs_as(self, incarnation: int) -> None:
        """From now on others find the pages of this engine."""
        _engines[incarnation] = self

    # --- nodes and ring

    def add_node(self, node_id: str, incarnation: int) -> int:
        index = self._numbers.add(node_id, incarnation)
        self.nodes[index] = (node_id, incarnation)
        return index

    def drop_node(self, index: int) -> None:
        del self.nodes[index]
        self._numbers.drop(index)

    def set_ring(self, positions: bytes, nodes: bytes, replicas: int, view_number: int = 0) -> None:
        self.ring = RingTable(positions, nodes, replicas)
        self.view_number = view_number

    def _ring(self) -> RingTable:
        assert self.ring is not None
        return self.ring

    def owners(self, digest: bytes) -> list[int]:
        return self._ring().owners(digest)

    def same_keys(self) -> list[tuple[int, int, int]]:
        return []

    def ring_shares(self, owners: int = 1) -> list[tuple[int, float]]:
        return self._ring().shares(owners)

    # --- records

    def local_rows(self, digests: bytes) -> bytes:
        raise NotImplementedError

    def find_records(self, digests: bytes, timeout_ms: int) -> bytes:
        del timeout_ms
        others = {
            index: _engines.get(incarnation) for index, (_, incarnation) in self.nodes.items()
        }
        return b"".join(
            held_by(other.local_rows(digests), index)
            for index, other in others.items()
            if other is not None and other is not self
        )

    def ask_owner(self, owner: int, digests: bytes, timeout_ms: int) -> tuple[bytes, bool] | None:
        del owner
        return self.local_rows(digests) + self.find_records(digests, timeout_ms), True

    def followed(self) -> list[int]:
        return list(self.nodes)

    def followers(self) -> list[tuple[int, int, bool]]:
        return [(incarnation, 0, True) for _, incarnation in self.nodes.values()]

    follows = stores_all = True

    @property
    def final_view(self) -> int:
        return self.view_number

    @property
    def all_have_asked(self) -> bool:
        return True

    def set_patience(self, ms: int) -> None:
        self.patience_ms = ms

    def tell_followers(self, digests: bytes) -> int:
        del digests
        return 1

    def followers_behind(self, position: int) -> list[tuple[int, float]]:
        del position
        return []  # nobody keeps records
