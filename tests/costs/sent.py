"""Counts what the record streams carry when a node joins, and when one crashes.

    PYTHONPATH=tests .venv/bin/python -m costs.sent 20 60 100

It simulates clusters of whole daemons. It compares the records sent with those that got a new
owner. It also counts the bytes of all batches and acknowledgements, for each node that has pages.
In a large cluster only some nodes have pages (sample.py), and each of them has streams to all.
"""

from __future__ import annotations

import gc
import sys
from collections import Counter, defaultdict
from collections.abc import Callable
from functools import partial
from statistics import median

from harness.fake_engine import digest_of
from sim.cluster import SimCluster, SimNode
from sim.members import TIMING
from sim.sample import holders_of

from costs import figures
from peercached.directory.layout import ROW_BYTES
from peercached.directory.messages import Ack, Batch, Kind
from peercached.directory.placement import Node
from peercached.peer.rpc import wire

SEEDS = 3
HEADS = 3
LARGE = 100  # from this many nodes: one seed with one join and one crash
JOINS = 2  # in each cluster, with as many crashes
PAGES_A_NODE = 30  # of those that may have pages
POOLS_ALIKE = (1 << 30,)
# Overhead of one message on an open stream: frames of gRPC and HTTP/2, and TCP/IP.
MESSAGE_OVERHEAD_BYTES = 5 + 9 + 52
SYNC_S = 10.0


class Counted:
    """`counts` sums over all streams of the cluster. The caller clears it."""

    def __init__(self, cluster: SimCluster) -> None:
        self.counts: Counter[str] = Counter()
        self._cluster = cluster
        self._known: set[SimNode] = set()

    def listen(self) -> None:
        """Starts counting at nodes that are new."""
        for node in self._cluster.nodes.values():
            if node not in self._known:
                self._known.add(node)
                self._listen_to(node)

    def _listen_to(self, node: SimNode) -> None:
        plain = node.daemon.node.batch

        def counting(holder: Node, batch: Batch) -> Ack | None:
            address = holder.address
            message = wire.batch_message(batch, address.node_id, address.incarnation)
            self.counts["bytes"] += message.ByteSize() + MESSAGE_OVERHEAD_BYTES
            self.counts["fingerprints"] += batch.kind is Kind.FINGERPRINT
            self.counts["summaries"] += batch.kind is Kind.SUMMARY
            if batch.kind in (Kind.ROWS, Kind.BUCKET):
                self.counts["records"] += len(batch.payload) // ROW_BYTES
            ack = plain(holder, batch)
            if ack is not None:
                self.counts["bytes"] += wire.ack_message(ack).ByteSize() + MESSAGE_OVERHEAD_BYTES
            return ack

        node.daemon.node.batch = counting


def _owned(cluster: SimCluster) -> set[tuple[bytes, str, str]]:
    """All (digest, its holder, one of its owners)."""
    node = cluster.nodes[cluster.names[0]]
    nodes, engine = node.daemon.placement.nodes, node.engine
    return {
        (digest, holder.name, nodes[owner].address.node_id)
        for holder in cluster.nodes.values()
        for digest in holder.engine.pool
        for owner in engine.owners(digest)
    }


def _events(cluster: SimCluster, pages: int, found: dict[str, list[float]]) -> None:
    cluster.until_agreed(30.0)
    cluster.run(SYNC_S / 2)
    setters = cluster.setters()
    for page in range(pages):
        cluster.rng.choice(setters).set_page(digest_of(f"page {page}"))
    cluster.run(SYNC_S / 2)
    counted = Counted(cluster)

    def event(name: str, happens: Callable[[], object]) -> None:
        before = _owned(cluster)
        counted.listen()
        counted.counts.clear()
        happens()
        counted.listen()
        cluster.run(SYNC_S + TIMING.member_ttl_s)
        assert cluster.agreed(), cluster.describe()
        moved = len(_owned(cluster) - before)
        sent = counted.counts
        found[f"{name}_moved_of_all_records"].append(moved / len(before))
        found[f"{name}_sent_against_moved"].append(sent["records"] / max(moved, 1))
        holders = len(cluster.setters())
        for what in ("fingerprints", "summaries", "bytes"):
            found[f"{name}_{what}_a_node"].append(sent[what] / holders)

    for newcomer in range(JOINS if len(cluster.nodes) < LARGE else 1):
        event("join", partial(cluster.start, f"x{newcomer}"))
        event("crash", partial(cluster.crash, cluster.names[HEADS + newcomer]))  # of an owner


def measure(nodes: int) -> dict[str, float]:
    found: dict[str, list[float]] = defaultdict(list)
    for seed in range(SEEDS if nodes < LARGE else 1):
        with SimCluster(
            seed, nodes, heads=HEADS, delay_s=0.005, pools=POOLS_ALIKE, holders=holders_of(nodes)
        ) as cluster:
            _events(cluster, PAGES_A_NODE * nodes, found)
    figures_: dict[str, float] = {"nodes": nodes}
    for name, values in found.items():
        figures_[name] = median(values)
        figures_[f"{name}_worst"] = max(values)
    return figures_


def main(sizes: list[int]) -> None:
    gc.set_threshold(100_000, 50, 1000)  # as in large.py
    for size in sizes:
        found = measure(size)
        figures.keep("sent", found)
        for name, value in found.items():
            print(f"{name:>34} {value:12.5f}", flush=True)


if __name__ == "__main__":
    main([int(size) for size in sys.argv[1:]] or [20, 60, 100])
