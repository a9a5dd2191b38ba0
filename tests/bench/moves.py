"""Counts how many records a join moves, compared to the minimum of any balanced placement.

    make bench-moves ARGS="100 1000 2000"

Keeps the figures in docs/scaling.json, and draws docs/scaling.svg.

It compares the daemon's rings (directory/ring.py, 160 positions an owner, two owners a digest)
before and after each of some joins, one after the other. A record moves when its digest gets a new
owner. Most joins make no member an owner (directory/owner_choice.py). Shares are exact, computed
from arc lengths.
"""

# /// script
# dependencies = ["matplotlib>=3.8"]
# ///

from __future__ import annotations

import random
import sys
from array import array
from statistics import mean

from harness.ring_owners import owners

from bench import figures
from peercached.directory.owner_choice import choose_owners
from peercached.directory.ring import Ring
from peercached.membership import NodeAddress

REPLICAS = 2
JOINS = 24
# Looked up before and after each join, to check that none moves between the other nodes.
DIGESTS = 2000


class Placed:
    def __init__(self, names: list[str]) -> None:
        """`names`: of the members, the oldest first."""
        ages = {name: number for number, name in enumerate(names)}
        since = {NodeAddress(name, 1, name, 1, 2): number for name, number in ages.items()}
        self.owners = {ages[name] for name in choose_owners(since)}
        self.places, self.nodes = array("Q"), array("H")
        packed = Ring().build({names[number]: number for number in self.owners})
        self.places.frombytes(packed[0])
        self.nodes.frombytes(packed[1])

    def shares(self) -> list[float]:
        """Each node's share of all digests, counting every digest that it owns. The shares add up
        to REPLICAS."""
        shares = [0.0] * (max(self.nodes) + 1)
        count, before = len(self.places), self.places[-1] - 2**64
        for at, place in enumerate(self.places):
            arc, before = (place - before) / 2**64, place
            first = self.nodes[at]
            after = at + 1
            while self.nodes[after % count] == first:
                after += 1
            shares[first] += arc
            shares[self.nodes[after % count]] += arc
        return shares

    def owners_of(self, digest: bytes) -> set[int]:
        return set(owners(digest, self.places, self.nodes, REPLICAS))


def measure(nodes: int, seed: int = 1) -> dict[str, float]:
    rng = random.Random(seed)
    names = [f"node-{number:05}" for number in range(nodes)]
    before = Placed(names)
    shares = [share for share in before.shares() if share]
    moved, least, elsewhere = [], [], 0
    for _ in range(JOINS):
        names.append(f"node-{len(names):05}")
        after = Placed(names)
        new = after.owners - before.owners
        after_shares = after.shares()
        moved.append(sum(after_shares[owner] for owner in new) / REPLICAS)
        least.append(1 / len(names))
        for digest in (rng.randbytes(16) for _ in range(DIGESTS)):
            elsewhere += len(after.owners_of(digest) - before.owners_of(digest) - new)
        before = after
    return {
        "nodes": nodes,
        "owners": len(shares),
        "least_of_all_records": mean(least),
        "moved_of_all_records": mean(moved),
        "moved_against_least": mean(moved) / mean(least),
        "joins_that_move_records": sum(map(bool, moved)) / JOINS,
        "moved_between_others": elsewhere,
        "largest_share_of_mean": max(shares) / mean(shares),
        "smallest_share_of_mean": min(shares) / mean(shares),
    }


def main(sizes: list[int]) -> None:
    for size in sizes:
        found = measure(size)
        figures.keep("moves", found)
        for name, value in found.items():
            print(f"{name:>22} {value:12.5f}", flush=True)


if __name__ == "__main__":
    main([int(size) for size in sys.argv[1:]] or [100, 1000, 2000])
    figures.plot()
