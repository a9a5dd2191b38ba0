"""The main job: pages set on one node are read, byte for byte, on another."""

import random
from concurrent.futures import ThreadPoolExecutor

from harness.cluster import Cluster
from harness.fixtures import MakeCluster
from harness.pages import Pages, keys_of
from harness.waiting import eventually


def test_a_page_is_visible_everywhere_the_moment_its_set_returns(three_nodes: Cluster) -> None:
    writers = [daemon.attach(page_bytes=4096) for daemon in three_nodes.daemons]
    for round_number in range(50):
        writer = writers[round_number % 3]
        keys = keys_of(f"at once {round_number}", 3)
        assert all(writer.set(keys))
        for reader in writers:
            assert reader.client.batch_exists(keys) == 3
            assert reader.has(keys)


def test_pages_of_any_size_arrive_whole(three_nodes: Cluster) -> None:
    sizes = [1, 7, 63, 64, 65, 4095, 4096, 4097, 65_536, 131_073, 1_000_003, 4 << 20]
    keys = keys_of("sizes", len(sizes))
    total = sum(sizes)
    writer = three_nodes[1].attach(page_bytes=total, room_pages=1)
    reader = three_nodes[2].attach(page_bytes=total, room_pages=1)
    assert all(writer.set(keys, sizes))
    assert reader.has(keys, sizes)


def test_exists_returns_the_longest_prefix_on_every_node(three_nodes: Cluster) -> None:
    keys = keys_of("chain", 20)
    writer = three_nodes[0].attach()
    assert all(writer.set(keys[:7]))
    assert all(writer.set(keys[8:12]))
    for daemon in three_nodes.daemons:
        client = daemon.attach().client
        assert client.batch_exists(keys) == 7
        assert client.contains(keys) == [n < 7 or 8 <= n < 12 for n in range(20)]


def test_a_get_right_after_exists_asks_the_directory_nothing(three_nodes: Cluster) -> None:
    keys = keys_of("primed", 64)
    assert all(three_nodes[0].attach().set(keys))
    reader = three_nodes[1].attach()
    assert reader.client.batch_exists(keys) == 64
    asked = three_nodes[1].status()["operations"]["lookups_asked"]
    assert reader.has(keys)
    assert three_nodes[1].status()["operations"]["lookups_asked"] == asked


def test_namespaces_never_meet(three_nodes: Cluster) -> None:
    keys = keys_of("shared name", 8)
    assert all(three_nodes[0].attach(namespace="model A").set(keys))
    for daemon in three_nodes.daemons:
        other = daemon.attach(namespace="model B")
        assert other.client.batch_exists(keys) == 0
        assert not any(other.get(keys))


def test_a_get_with_another_length_is_a_miss(three_nodes: Cluster) -> None:
    keys = keys_of("length", 2)
    assert all(three_nodes[0].attach().set(keys, [10_000, 10_000]))
    for daemon in three_nodes.daemons:
        statuses = daemon.attach().get(keys, [9_999, 10_001])
        assert [status.name for status in statuses] == ["length_mismatch"] * 2


def test_every_node_gets_pages_of_lengths_that_it_did_not_know(three_nodes: Cluster) -> None:
    pages = {f"of {size}": bytes(i % 251 for i in range(size)) for size in (1, 4097, 70_001)}
    with three_nodes[0].attach() as writer:
        assert all(writer.client.set(key, page) for key, page in pages.items())
    for daemon in three_nodes.daemons:
        with daemon.attach() as reader:
            keys = ["nowhere", *pages, "of 1"]
            assert reader.client.lengths(keys) == [0, 1, 4097, 70_001, 1]
            assert {key: reader.client.get(key) for key in pages} == pages
            assert reader.client.get("nowhere") is None


def test_readers_find_a_page_set_again_with_another_length(three_nodes: Cluster) -> None:
    keys = keys_of("anew", 8)
    writer = three_nodes[0].attach()
    readers = [daemon.attach() for daemon in three_nodes.daemons]
    for length in (10_000, 4_000, 12_000):
        assert all(writer.set(keys, [length] * 8))
        for reader in readers:
            assert reader.has(keys, [length] * 8)


def test_remove_takes_pages_away_from_every_node(three_nodes: Cluster) -> None:
    keys = keys_of("removed", 8)
    assert all(three_nodes[0].attach().set(keys))
    three_nodes[1].attach().client.remove(keys[2:4])
    for daemon in three_nodes.daemons:
        contains = daemon.attach().client.contains
        eventually(lambda: contains(keys) == [True] * 2 + [False] * 2 + [True] * 4)  # noqa: B023


def test_clear_empties_the_namespace_on_every_node_and_no_other(three_nodes: Cluster) -> None:
    keys = keys_of("cleared", 8)
    for namespace in ("doomed", "kept"):
        assert all(three_nodes[0].attach(namespace=namespace).set(keys))
    three_nodes[1].attach(namespace="doomed").client.clear()
    for daemon in three_nodes.daemons:
        assert daemon.attach(namespace="doomed").client.batch_exists(keys) == 0
        assert daemon.attach(namespace="kept").has(keys)
    assert all(three_nodes[2].attach(namespace="doomed").set(keys))
    assert three_nodes[0].attach(namespace="doomed").has(keys)


def test_many_workers_set_and_get_at_once(three_nodes: Cluster) -> None:
    """Each worker reads pages that others have set so far, of mixed sizes, while all keep
    setting."""
    sizes = [4096, 20_000, 65_536, 131_072]

    def sizes_of(keys: list[bytes]) -> list[int]:
        return [sizes[key[-1] % len(sizes)] for key in keys]

    def work(number: int) -> int:
        chance = random.Random(number)
        # Generous timeout: this test does not measure speed.
        node = three_nodes[number % 3]
        pages: Pages = node.attach(page_bytes=131_072, room_pages=16, timeout_s=20.0)
        hits = 0
        for round_number in range(15):
            mine = keys_of(f"worker {number} round {round_number}", 8)
            # After one slow answer the client probes with 5 ms timeouts until the daemon answers.
            eventually(lambda: all(pages.set(mine, sizes_of(mine))))  # noqa: B023
            theirs = keys_of(f"worker {chance.randrange(6)} round {round_number}", 8)
            hits += sum(map(bool, pages.get(theirs, sizes_of(theirs))))
        return hits

    with ThreadPoolExecutor(6) as pool:
        hits = sum(pool.map(work, range(6)))
    assert hits > 0


def test_evicted_pages_miss_everywhere_and_can_be_set_again(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(3, pool_size="4MiB")
    writer, reader = cluster[0].attach(), cluster[1].attach()
    first = keys_of("first", 32)
    assert all(writer.set(first))
    for number in range(4):
        assert all(writer.set(keys_of(f"flood {number}", 32)))
    assert cluster[0].status()["pool"]["evictions"] >= 64
    assert not any(reader.get(first))
    # Owners learn of evictions a moment later.
    eventually(lambda: reader.client.batch_exists(first) == 0, what="owners to be told")
    assert all(writer.set(first))
    assert reader.has(first)
    for number in range(16):  # pages that were read outlive some that were not
        writer.client.touch(first[:8])
        assert all(writer.set(keys_of(f"more {number}", 16)))
    held = writer.client.contains(first)
    assert all(held[:8]), "a touched page was evicted"
    # Some of the others may be left: how soon they go depends on when the reader's reads are told.
    assert not all(held[8:]), "pages that nobody touched outlived 256 others"


def test_late_joiner_reads_pages_set_before_it_joined(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(3, start=False)
    early = cluster.daemons[:2]
    for daemon in early:
        daemon.start()
    cluster.wait_complete()
    keys = keys_of("early", 64)
    assert all(cluster[0].attach().set(keys))
    cluster.start_again(cluster[2])
    late = cluster[2].attach()
    eventually(lambda: late.has(keys), what="the late node reads everything")
    assert cluster[1].attach().has(keys), "the join itself cost a miss"


def test_a_node_that_leaves_takes_only_its_own_pages(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(3)
    stays, goes = keys_of("stays", 64), keys_of("goes", 16)
    assert all(cluster[0].attach().set(stays))
    assert all(cluster[2].attach().set(goes))
    assert cluster[2].stop() == 0
    reader = cluster[1].attach()
    assert reader.has(stays)
    assert not any(reader.get(goes))
    cluster.wait_complete()
    assert reader.has(stays)
