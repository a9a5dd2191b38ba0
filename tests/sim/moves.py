"""How many records a join moves, against the least that any balanced placement could.

    PYTHONPATH=tests .venv/bin/python -m sim.moves 100 1000 2000

The rings are the daemon's (directory/ring.py, 160 positions a node, two owners a digest), before
and after one more node has joined. A record moves when its digest gets an owner that it had not;
the newcomer's fair share is the least that has to move. Shares are exact, by the lengths of arcs.

What the holders really send after a join is counted in a simulated cluster, whose record streams
are the daemon's.
"""

from __future__ import annotations

import random
import sys
from array import array
from statistics import mean, pstdev

from peercached.directory.layout import ROW_BYTES
from peercached.directory.messages import Ack, Batch, Kind
from peercached.directory.placement import Node
from peercached.directory.ring import Ring, owners
from sim import figures
from sim.cluster import SimCluster, SimNode
from sim.fake_engine import digest_of

REPLICAS = 2
JOINS = 12
DIGESTS = 2000  # looked up before and after each join, to see that none moves between the others


class Placed:
    def __init__(self, names: list[str]) -> None:
        self.places, self.nodes = array("Q"), array("H")
        packed = Ring().build({name: number for number, name in enumerate(names)})
        self.places.frombytes(packed[0])
        self.nodes.frombytes(packed[1])

    def shares(self) -> list[float]:
        """Of all digests, by node: those that it is an owner of. They add up to REPLICAS."""
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

    def owners(self, digest: bytes) -> set[int]:
        return set(owners(digest, self.places, self.nodes, REPLICAS))


def measure(nodes: int, seed: int = 1) -> dict[str, float]:
    rng = random.Random(seed)
    names = [f"node-{number:05}" for number in range(nodes)]
    before = Placed(names)
    shares = before.shares()
    moved, elsewhere = [], 0
    for join in range(JOINS):
        after = Placed([*names, f"newcomer-{join}"])
        moved.append(after.shares()[nodes])
        for digest in (rng.randbytes(16) for _ in range(DIGESTS)):
            elsewhere += len(after.owners(digest) - before.owners(digest) - {nodes})
    least = REPLICAS / (nodes + 1)
    return {
        "nodes": nodes,
        "least_of_all_records": least / REPLICAS,
        "moved_of_all_records": mean(moved) / REPLICAS,
        "moved_against_least": mean(moved) / least,
        "from_join_to_join": pstdev(moved) / least,
        "moved_between_others": elsewhere,
        "largest_share_of_mean": max(shares) / mean(shares),
        "smallest_share_of_mean": min(shares) / mean(shares),
    }


def sent(nodes: int = 20, pages: int = 600) -> dict[str, int]:
    """Records that change their owner when one node joins, and what travels on the streams."""
    with SimCluster(1, nodes, heads=3, delay_s=0.005) as cluster:
        return _sent(cluster, nodes, pages)


def _sent(cluster: SimCluster, nodes: int, pages: int) -> dict[str, int]:
    cluster.until_agreed(30.0)
    cluster.run(5.0)
    digests = [digest_of(f"page {page}") for page in range(pages)]
    for digest in digests:
        cluster.rng.choice(cluster.readers()).set_page(digest)
    cluster.run(5.0)

    def owned() -> set[tuple[bytes, str]]:
        placement = cluster.nodes[cluster.names[0]].daemon.placement
        engine = cluster.nodes[cluster.names[0]].engine
        return {(d, placement.nodes[i].address.node_id) for d in digests for i in engine.owners(d)}

    before = owned()
    counts = {"records": 0, "summaries": 0}

    def count(node: SimNode) -> None:
        plain = node.daemon.node.batch

        def batch(holder: Node, sent: Batch) -> Ack | None:
            counts["summaries"] += sent.kind is Kind.SUMMARY
            if sent.kind in (Kind.ROWS, Kind.BUCKET):
                counts["records"] += len(sent.payload) // ROW_BYTES
            return plain(holder, sent)

        node.daemon.node.batch = batch  # type: ignore[method-assign]

    cluster.start("newcomer")
    for node in cluster.nodes.values():
        count(node)
    cluster.run(10.0)
    cluster.check_quiet()
    moved = len(owned() - before)
    return {
        "nodes": nodes + 1,
        "records_moved": moved,
        **{f"{k}_sent": v for k, v in counts.items()},
    }


def main(sizes: list[int]) -> None:
    for size in sizes:
        found = measure(size)
        figures.keep("moves", found)
        for name, value in found.items():
            print(f"{name:>22} {value:12.5f}", flush=True)
    print(sent())


if __name__ == "__main__":
    main([int(size) for size in sys.argv[1:]] or [100, 1000, 2000])
