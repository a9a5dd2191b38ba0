"""Private host tiers of the engines beside a shared pool, at equal memory, or all in the pool.

    make bench-host-tier                      made-up conversations, and questions about documents
    make bench-host-tier ARGS=FILE.jsonl.gz   a trace in Mooncake's format

Reproduces the shape of the experiment in SGLang's pull request 20535: buffer-only hosts give the
memory of their host tier to the storage. Nodes have their tier in front of the shared pool, as
HiCache with write_through does. It keeps every page that passes, and the engine's own LRU evicts.
Pool and trace are those of `peercachectl simulate`.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from bench.hit_rate import Chains, conversations
from demo.workload import Documents
from peercached.sizing.simulation import Cluster
from peercached.sizing.trace import read_trace

NODES = 4
DOCUMENTS, QUESTIONS_EACH = 200, 10
SHARES = (0.05, 0.1, 0.2, 0.4)  # all memory, as a share of all different blocks
TIERS = (0.0, 0.25, 0.5, 0.75)  # the private tiers' part of it


class Tier:
    """A private tier: evicts the block used longest ago, and chains from their end."""

    def __init__(self, blocks: int) -> None:
        self._max = blocks
        self._blocks: OrderedDict[int, None] = OrderedDict()

    def prefix(self, blocks: Sequence[int]) -> int:
        return next((at for at, one in enumerate(blocks) if one not in self._blocks), len(blocks))

    def use(self, blocks: Sequence[int]) -> None:
        for block in reversed(blocks):
            self._blocks[block] = None
            self._blocks.move_to_end(block)
        while len(self._blocks) > self._max:
            self._blocks.popitem(last=False)


class Tiered:
    """Nodes with a private tier each, and a cluster of pools behind them. `memory`: blocks of all
    nodes together; `share`: the part of it that is in the tiers. `by_prefix`: a request goes to the
    node that has the most of it in its tier, else to the next in turn."""

    def __init__(self, memory: int, share: float, *, by_prefix: bool, nodes: int = NODES) -> None:
        tier = int(memory * share / nodes)
        self._tiers = [Tier(tier) for _ in range(nodes)]
        self.pool = Cluster(nodes, memory // nodes - tier)
        self._by_prefix = by_prefix
        self._turn = 0
        self.asked = 0
        self.in_tier = 0

    def request(self, blocks: Sequence[int]) -> None:
        node = self._turn % len(self._tiers)
        self._turn += 1
        if self._by_prefix:
            held = [tier.prefix(blocks) for tier in self._tiers]
            if max(held) > held[node]:
                node = held.index(max(held))
        found = self._tiers[node].prefix(blocks)
        self.asked += len(blocks)
        self.in_tier += found
        self.pool.at(node, blocks[found:])  # the storage is asked for the rest only
        self._tiers[node].use(blocks)

    @property
    def from_storage(self) -> int:
        return self.pool.found.here + self.pool.found.peer

    @property
    def hit_rate(self) -> float:
        return (self.in_tier + self.from_storage) / self.asked


def replay(chains: Chains, share: float, part: float, *, by_prefix: bool = False) -> Tiered:
    """`share`: all memory, of all different blocks; `part` of it is in the tiers."""
    hosts = Tiered(int(different(chains) * share), part, by_prefix=by_prefix)
    for chain in chains:
        hosts.request(chain)
    return hosts


def different(chains: Chains) -> int:
    return len({block for chain in chains for block in chain})


def measure(chains: Chains) -> None:
    print(f"{len(chains):,} requests, {different(chains):,} different blocks, {NODES} nodes")
    print("hit rate (of it from storage), by the tiers' part of the memory")
    print(f"{'memory':>7} {'requests go':>12}" + "".join(f"{part:>16.0%}" for part in TIERS))
    for share in SHARES:
        for by_prefix in (False, True):
            row = f"{share:>7.0%} {'to the tier' if by_prefix else 'in turns':>12}"
            for part in TIERS:
                if part == 0 and by_prefix:
                    row += f"{'':>16}"
                    continue
                hosts = replay(chains, share, part, by_prefix=by_prefix)
                row += f"{hosts.hit_rate:>8.1%} ({hosts.from_storage / hosts.asked:>5.1%})"
            print(row, flush=True)


def documents() -> Chains:
    """Several questions about each of some long documents (demo/workload.py)."""
    asked = islice(Documents(DOCUMENTS).requests(), QUESTIONS_EACH * DOCUMENTS)
    return [request.chain for request in asked]


def main(trace: str = "") -> None:
    measure(conversations())
    measure(documents())
    if trace:
        measure(list(read_trace(Path(trace))))


if __name__ == "__main__":
    main(*sys.argv[1:])
