"""The reuse hammer of tests/cluster, with one-sided READs. They bypass the holder's processor, so
the holder may reuse a slot while a peer reads it."""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from harness.cluster import Cluster, Daemon
from harness.fixtures import MakeCluster
from harness.hammer import Hammer
from harness.waiting import eventually

from rdma.rdma_devices import devices

# Some pages exceed a slice (transfer/rdma/peer_read.cc), so several chains bring them.
SHAPE: dict[str, int | str] = {"keys": 48, "sizes": "4096,20000,65536,400000"}


def pages_read(daemon: Daemon) -> int:
    """The number of pages READ, whether they were then served or not."""
    return sum(rail["pages"] for rail in daemon.status()["transport"]["rails"])


def hammered(make_cluster: MakeCluster, **reader_options: str) -> Cluster:
    """A holder with a pool that is far too small, and a reader."""
    return make_cluster(
        2,
        each=[
            {"device_names": devices()[0], "pool_size": "3MiB", "spill_bytes_per_s": 0},
            {"device_names": devices()[1], **reader_options},
        ],
    )


@contextmanager
def hammers(cluster: Cluster) -> Iterator[list[Hammer]]:
    """Two hammers set pages at the holder without pause. Yields two that read at the reader."""
    holder, reader = cluster.daemons
    with ExitStack() as stack:
        started = []
        for seed, (verb, daemon) in enumerate([("write", holder), ("read", reader)] * 2):
            options: dict[str, int | float | str] = {"seed": seed, "timeout_s": 20, **SHAPE}
            hammer = Hammer(verb, daemon.socket_path, **options)
            stack.callback(hammer.kill)
            started.append(hammer)
        for hammer in started:
            hammer.wait_ready()
        yield started[1::2]


def right_or_missed(cluster: Cluster, reads: int, timeout_s: float) -> Counter[str]:
    """The statuses after `reads` page READs or more. A wrong byte fails the test."""
    holder, reader = cluster.daemons
    counts: Counter[str] = Counter()
    with hammers(cluster) as reading:
        eventually(
            lambda: pages_read(reader) >= reads or any(hammer.ended for hammer in reading),
            timeout_s,
            f"{reads} pages were read",
        )
        for hammer in reading:
            counts.update(hammer.stop()["pages"])
    pool = holder.status()["pool"]
    assert pool["evictions"] > 3 * pool["keys"], "slots were hardly reused: no test at all"
    read = pages_read(reader)
    print(f"{read} pages READ, wrong bytes 0, {dict(counts)}")  # pytest -rP shows it
    return counts


def test_a_slot_reused_under_a_read_is_never_served(make_cluster: MakeCluster) -> None:
    counts = right_or_missed(hammered(make_cluster), 250, 90)
    assert counts["ok"] > 25


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("verify", ["checksum", "header"])
def test_a_hundred_thousand_reads_are_right_or_missed(
    make_cluster: MakeCluster, verify: str
) -> None:
    counts = right_or_missed(hammered(make_cluster, verify=verify), 100_000, 1400)
    assert counts["ok"] > 10_000


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_without_verification_the_hammer_finds_wrong_bytes(make_cluster: MakeCluster) -> None:
    cluster = hammered(make_cluster, faults="seed=1,blind=1")
    with hammers(cluster) as reading:
        eventually(lambda: any(hammer.ended for hammer in reading), 200, "one has wrong bytes")
        assert any("wrong bytes were served" in hammer.complaint() for hammer in reading)
