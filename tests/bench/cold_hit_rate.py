"""Hit rates with memory only, with disks, and with an object store, by `cold_after_uses`.

    make bench-cold-hit-rate                      made-up conversations (demo/workload.py)
    make bench-cold-hit-rate ARGS=FILE.jsonl.gz   a trace in Mooncake's format

One node, simulated: the pool in the order of the daemon's, a disk of four pools that takes all
pages that leave the pool, and a store without limit that takes those which were read often enough
while they were in the pool. "All" is the whole sequence. "After" is its second half, when all but
the store was lost before it. "Written" is the share of all different blocks that is in the store.
"Used" is the share of these that was read from there.
"""

from __future__ import annotations

import sys
from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from pathlib import Path

from bench.hit_rate import Chains, conversations
from peercached.sizing.pool import Pool
from peercached.sizing.trace import read_trace

SHARES = (0.02, 0.05, 0.1, 0.2)  # the pool, of all different blocks
DISK_POOLS = 4
USES = (0, 1, 2, 3)


@dataclass
class Node:
    """`uses`: as cold_after_uses; None: no store."""

    blocks: int
    disk_blocks: int = 0
    uses: int | None = None
    asked: int = 0
    found: int = 0
    store: set[int] = field(default_factory=set)
    from_store: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.wipe()

    def wipe(self) -> None:
        self._pool = Pool(self.blocks)
        self._disk: OrderedDict[int, None] = OrderedDict()
        self._reads: Counter[int] = Counter()  # of blocks in the pool

    def request(self, chain: tuple[int, ...]) -> None:
        prefix = next((at for at, one in enumerate(chain) if not self._has(one)), len(chain))
        self.asked += len(chain)
        self.found += prefix
        for block in reversed(chain[:prefix]):  # so that the last one is evicted first
            if block in self._pool:
                self._pool.use(block)
            else:
                if block not in self._disk:
                    self.from_store.add(block)
                self._set(block)
            self._reads[block] += 1
        for block in reversed(chain[prefix:]):
            self._set(block)

    def _has(self, block: int) -> bool:
        return block in self._pool or block in self._disk or block in self.store

    def _set(self, block: int) -> None:
        for evicted in self._pool.set(block):
            reads = self._reads.pop(evicted, 0)
            if self.uses is not None and reads >= self.uses:
                self.store.add(evicted)
            self._disk[evicted] = None
            self._disk.move_to_end(evicted)
        while len(self._disk) > self.disk_blocks:
            self._disk.popitem(last=False)


def measure(chains: Chains) -> None:
    different = len({block for chain in chains for block in chain})
    longest = max(map(len, chains))
    print(f"{len(chains):,} requests, {different:,} different blocks")
    kinds: list[tuple[str, int, int | None]] = [("memory", 0, None), ("disk", DISK_POOLS, None)]
    kinds += [(f"memory, store {uses}", 0, uses) for uses in USES]
    kinds += [(f"disk, store {uses}", DISK_POOLS, uses) for uses in USES]
    print(f"{'pool':>5}{'':20}{'all':>8}{'after':>8}{'written':>9}{'used':>7}")
    for share in SHARES:
        blocks = max(int(different * share), longest)
        for name, disk_pools, uses in kinds:
            whole = Node(blocks, disk_pools * blocks, uses)
            for chain in chains:
                whole.request(chain)
            node = Node(blocks, disk_pools * blocks, uses)
            for at, chain in enumerate(chains):
                if at == len(chains) // 2:
                    node.wipe()
                    node.asked = node.found = 0
                node.request(chain)
            row = f"{share:>5.0%} {name:<19}{whole.found / whole.asked:>8.1%}"
            row += f"{node.found / node.asked:>8.1%}"
            if uses is not None:
                used = len(whole.from_store) / max(len(whole.store), 1)
                row += f"{len(whole.store) / different:>9.1%}{used:>7.1%}"
            print(row, flush=True)


def main(trace: str = "") -> None:
    measure(list(read_trace(Path(trace))) if trace else conversations())


if __name__ == "__main__":
    main(*sys.argv[1:])
