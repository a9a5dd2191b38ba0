"""Events of pages with real daemons: what a router hears is what `locate` finds."""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Sequence

from harness.cluster import Cluster, Daemon
from harness.fixtures import MakeCluster
from harness.kv_subscriber import Subscriber
from harness.pages import Pages, keys_of
from harness.waiting import eventually

from peercache_bench.process import free_port

PAGE = 64 << 10


def hashes_of(keys: Sequence[bytes]) -> set[bytes | int]:
    return {hashlib.sha256(key).digest() for key in keys}


def set_named(worker: Pages, keys: Sequence[bytes], block_tokens: int = 16) -> None:
    offsets = [i * worker.page_bytes for i in range(len(keys))]
    hashes = [hashlib.sha256(key).digest() for key in keys]
    statuses = worker.client.batch_set(
        keys, worker.region, offsets, worker.page_bytes, hashes=hashes, block_tokens=block_tokens
    )
    assert all(statuses), statuses


def free_pair(host: str = "127.0.0.1") -> int:
    """A port that is free, as is the next one."""
    while True:
        port = free_port(host)
        with socket.socket() as next_one:
            try:
                next_one.bind((host, port + 1))
            except (OSError, OverflowError):
                continue
            return port


def telling(make_cluster: MakeCluster, size: int = 3, **options: object) -> Cluster:
    return make_cluster(
        size, each=[{"kv-events-port": free_pair()} for _ in range(size)], **options
    )


def subscribe(daemon: Daemon, **options: object) -> Subscriber:
    return Subscriber(daemon.host, int(str(daemon.options["kv-events-port"])), **options)


def hears(router: Subscriber, node: str, keys: Sequence[bytes], medium: str = "") -> None:
    """Waits until the router knows these pages at the node, and no others."""

    def same() -> bool:
        router.take()
        return router.held(node, medium=medium) == hashes_of(keys)

    eventually(same, what=lambda: f"{len(keys)} pages of {node}; it has {router.known()!r:.300}")


def test_a_router_at_one_node_hears_of_pages_of_all(make_cluster: MakeCluster) -> None:
    cluster = telling(make_cluster)
    with subscribe(cluster[0]) as router:
        for place, daemon in enumerate(cluster.daemons):
            worker = daemon.attach(page_bytes=PAGE)
            set_named(worker, keys_of(f"node {place}", 20))
        for place, daemon in enumerate(cluster.daemons):
            hears(router, daemon.node_id, keys_of(f"node {place}", 20), "CPU")
        assert router.localities == {
            cluster[0].node_id: {"LOCAL"},
            cluster[1].node_id: {"REMOTE"},
            cluster[2].node_id: {"REMOTE"},
        }
        assert set(router.block_sizes.values()) == {16}
