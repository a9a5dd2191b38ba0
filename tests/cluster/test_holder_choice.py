"""A page with several holders is read from the one that answers quickly."""

import pytest
from harness.cluster import Cluster
from harness.fixtures import MakeCluster
from harness.netns import Network
from harness.pages import Pages, keys_of
from harness.waiting import eventually

pytestmark = pytest.mark.netns

PAGE = 64 << 10
PAGES = 400
AT_ONCE = 16
SLOW_BITS_PER_S = 10_000_000


def pages_read(cluster: Cluster) -> dict[str, int]:
    """By the third node, from the others."""
    return {peer["node_id"]: peer["pages"] for peer in cluster[2].status()["transfer"]}


def read_all(reader: Pages, keys: list[bytes]) -> None:
    for first in range(0, len(keys), AT_ONCE):
        assert reader.has(keys[first : first + AT_ONCE])


def test_equal_holders_share_the_reads_and_a_slow_one_gets_few(
    network: Network, on_hosts: MakeCluster
) -> None:
    hosts = on_hosts(replica_share=0)
    keys = keys_of("held twice", PAGES)
    for holder in hosts.daemons[:2]:
        writer = holder.attach(page_bytes=PAGE)
        for first in range(0, PAGES, 50):
            assert all(writer.set(keys[first : first + 50]))
    reader = hosts[2].attach(page_bytes=PAGE)
    eventually(lambda: hosts[2].status()["copies"]["records"] >= 2 * PAGES, 10)

    read_all(reader, keys)
    before = pages_read(hosts)
    assert min(before["a"], before["b"]) > PAGES // 5, before

    # Every other page only a has, so b gives most of those that both have.
    alone = keys_of("held once", PAGES)
    for first in range(0, PAGES, 50):
        assert all(hosts[0].attach(page_bytes=PAGE).set(alone[first : first + 50]))
    eventually(lambda: hosts[2].status()["copies"]["records"] >= 3 * PAGES, 10)
    read_all(reader, [key for pair in zip(keys, alone, strict=True) for key in pair])
    mixed = pages_read(hosts)
    assert mixed["b"] - before["b"] > 0.65 * PAGES, (before, mixed)
    before = mixed

    network.slow_down("a", SLOW_BITS_PER_S)
    read_all(reader, keys)
    slowed = pages_read(hosts)
    read_all(reader, keys)
    after = pages_read(hosts)
    assert after["a"] - slowed["a"] < PAGES // 4, (before, slowed, after)
    assert after["a"] + after["b"] - before["a"] - before["b"] == 2 * PAGES
