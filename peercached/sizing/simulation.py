"""Replays requests against pools of given sizes, and counts the blocks found.

Requests go to the nodes in turns. A node sets the blocks that it did not find, into its own pool.
Each pool evicts in the order of the daemon's (pool.py); of one prompt, the last block first. Blocks
at other nodes are found and stay there (docs/architecture.md). Here requests
come one after the other, and no node fails, unlike with real nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from peercached.sizing.pool import Pool


@dataclass
class Found:
    """Blocks of all requests."""

    asked: int = 0
    here: int = 0  # in the pool of the node that asked
    peer: int = 0

    @property
    def hit_rate(self) -> float:
        return (self.here + self.peer) / self.asked if self.asked else 0.0


class Cluster:
    """Nodes with pools of `blocks` blocks each; None: unlimited. `shared`: nodes read each other's
    pools."""

    def __init__(self, nodes: int, blocks: int | None, *, shared: bool = True) -> None:
        self.found = Found()
        self._shared = shared
        self._pools = [Pool(blocks) for _ in range(nodes)]
        self._holders: dict[int, set[int]] = {}  # block -> nodes
        self._turn = 0

    def request(self, blocks: Sequence[int]) -> None:
        """One prompt, at the next node."""
        node = self._turn % len(self._pools)
        self._turn += 1
        self.at(node, blocks)

    def at(self, node: int, blocks: Sequence[int]) -> None:
        """One prompt, at this node."""
        prefix = 0
        for block in blocks:
            holder = self._find(node, block)
            if holder is None:
                break
            prefix += 1
            if holder == node:
                self.found.here += 1
            else:
                self.found.peer += 1
        self.found.asked += len(blocks)
        # The last block is touched first, so that it is evicted before those in front of it.
        for block in reversed(blocks[:prefix]):
            holder = self._find(node, block)
            if holder is not None:
                self._pools[holder].use(block)
        for block in reversed(blocks[prefix:]):
            self._set(node, block)

    def _find(self, node: int, block: int) -> int | None:
        if block in self._pools[node]:
            return node
        return min(self._holders.get(block, ()), default=None) if self._shared else None

    def _set(self, node: int, block: int) -> None:
        self._holders.setdefault(block, set()).add(node)
        for evicted in self._pools[node].set(block):
            self._holders[evicted].discard(node)


def replay(requests: Iterable[Sequence[int]], clusters: Sequence[Cluster]) -> None:
    """Sends each request to all clusters."""
    for blocks in requests:
        for cluster in clusters:
            cluster.request(blocks)
