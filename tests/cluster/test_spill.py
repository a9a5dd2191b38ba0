"""A full node's pages move to nodes with room before it evicts them."""

from collections.abc import Sequence
from functools import partial
from itertools import count

from harness.cluster import Cluster, Daemon
from harness.fixtures import MakeCluster
from harness.pages import Pages, keys_of
from harness.spilling import BATCH, BUDGET, PAGE, POOL, at_rest, set_slowly, spilled
from harness.versions import Versions
from harness.waiting import CALL_S, eventually

from peercache_client import Client, Status
from peercached.health.kinds import EVICTED_BESIDE_ROOM

CODE = EVICTED_BESIDE_ROOM.code


def count_found(pages: Pages, keys: Sequence[bytes]) -> int:
    return sum(sum(map(bool, pages.get(keys[at : at + 64]))) for at in range(0, len(keys), 64))


def test_pages_of_a_full_node_are_still_found_while_others_have_room(
    make_cluster: MakeCluster,
) -> None:
    """Three pools hold what one node has set. The reader compares every byte."""
    cluster = make_cluster(3, pool_size=POOL, spill_bytes_per_s=BUDGET)
    keys = keys_of("set at a", 2 * POOL // PAGE)
    set_slowly(cluster[0], cluster[0].attach(page_bytes=PAGE), keys)
    assert cluster[0].status()["pool"]["keys"] < 0.55 * len(keys)
    for daemon in cluster.daemons:
        found = count_found(daemon.attach(page_bytes=PAGE), keys)
        # The evictor may have been quicker with a few of them.
        assert found > 0.75 * len(keys), f"at {daemon.node_id}; it is 0.48 without spill"
    adopted = [daemon.status()["handover"]["adopted"] for daemon in cluster.daemons]
    assert adopted[0] == 0
    # A peer that has a page already says that it takes it.
    assert sum(adopted) > 0
    # A peer has a part before its answer is here.
    eventually(lambda: sum(adopted) * PAGE <= spilled(cluster[0])["bytes"], 10)


def test_without_a_budget_nothing_spills(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(2, pool_size=POOL, spill_bytes_per_s=0)
    writer = cluster[0].attach(page_bytes=PAGE)
    keys = keys_of("set at a", 2 * POOL // PAGE)
    for at in range(0, len(keys), BATCH):
        assert all(writer.set(keys[at : at + BATCH]))
    assert spilled(cluster[0])["pages"] == 0
    assert cluster[1].status()["pool"]["keys"] == 0


def test_status_says_that_a_node_evicts_while_a_peer_has_room(make_cluster: MakeCluster) -> None:
    giver, taker = make_cluster(2, each=[{"pool_size": POOL}, {"pool_size": 16 * POOL}]).daemons
    with Client(str(giver.socket_path), "test", timeout_s=CALL_S) as worker:
        region = worker.alloc(16 * PAGE)
        offsets = [number * PAGE for number in range(16)]

        numbers = count()

        def is_found() -> bool:
            keys = keys_of(f"burst {next(numbers)}", 2 * POOL // PAGE)
            for at in range(0, len(keys), 16):
                assert all(worker.batch_set(keys[at : at + 16], region, offsets, [PAGE] * 16))
            found = [each for each in giver.status()["health"] if each["code"] == CODE]
            return bool(found) and taker.node_id in found[0]["sentence"]

        assert not giver.status()["pool"]["lost_bytes"]
        eventually(is_found, 30)
    assert CODE not in taker.codes()


def test_a_memory_only_node_is_filled_serves_its_pages_and_leaves_by_a_drain(
    make_cluster: MakeCluster,
) -> None:
    """Nothing is configured but its role."""
    cluster = make_cluster(3, pool_size=POOL, each=[{}, {}, {"role": "memory"}])
    lender = cluster[2]
    assert not lender.socket_path.exists()
    keys = keys_of("set at a", 2 * POOL // PAGE)
    set_slowly(cluster[0], cluster[0].attach(page_bytes=PAGE), keys)
    eventually(lambda: at_rest(cluster[0]), 20)
    status = lender.status()
    (giver,) = status["taken_from"]
    assert giver["node_id"] == "a"
    assert giver["pages"] >= status["pool"]["adopted_keys"] > 0
    assert status["pool"]["adopted_bytes"] == status["pool"]["payload_bytes"]
    reader = cluster[1].attach(page_bytes=PAGE)
    assert count_found(reader, keys) > 0.75 * len(keys)
    assert lender.drain(stay=False)["handed_pages"] > 0


def test_equally_busy_nodes_keep_their_pages(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(3, pool_size=POOL, spill_bytes_per_s=BUDGET)
    writers = [daemon.attach(page_bytes=PAGE) for daemon in cluster.daemons]
    rounds = 4 * POOL // PAGE // BATCH
    for number in range(rounds):
        for writer, daemon in zip(writers, cluster.daemons, strict=True):
            assert all(writer.set(keys_of(f"{daemon.node_id} {number}", BATCH)))
    evicted = sum(daemon.status()["pool"]["evictions"] for daemon in cluster.daemons)
    moved = sum(spilled(daemon)["pages"] for daemon in cluster.daemons)
    assert evicted > 2 * 3 * POOL // PAGE
    assert moved < evicted / 10, f"{moved} pages moved, {evicted} were evicted"


def test_removed_pages_that_had_spilled_are_gone_everywhere(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(3, pool_size=POOL, spill_bytes_per_s=BUDGET)
    keys = keys_of("spilled", POOL // PAGE)
    with Versions(cluster[0].socket_path, page_bytes=PAGE, room_pages=BATCH) as worker:
        for at in range(0, len(keys), BATCH):
            assert all(worker.set(keys[at : at + BATCH], 1))
        eventually(lambda: spilled(cluster[0])["pages"] > 0, 20)
        assert sum(daemon.status()["handover"]["adopted"] for daemon in cluster.daemons) > 0
        assert set(worker.client.remove(keys)) <= {Status.ok, Status.absent}
    assert _held(cluster) == 0


def test_pages_removed_and_set_anew_while_they_move_stay(make_cluster: MakeCluster) -> None:
    """The old copy is dropped half a second after it has moved: by its record, not by its key."""
    cluster = make_cluster(2, each=[{"pool_size": "16MiB"}, {}])
    with Versions(cluster[0].socket_path, page_bytes=PAGE, room_pages=32) as worker:
        keys = keys_of("filling", 240)
        for at in range(0, len(keys), 20):
            assert all(worker.set(keys[at : at + 20], 1))
        for number in range(5):
            fresh = keys_of(f"fresh {number}", 20)
            assert all(worker.set(fresh, 1))  # so that the oldest move
            oldest, keys = keys[:20], keys[20:] + fresh
            assert set(worker.remove(oldest)) <= {Status.ok, Status.absent}
            assert all(worker.set(oldest, 2))
            eventually(lambda: at_rest(cluster[0]), 20)
            assert worker.get(oldest) == [2] * len(oldest)
        assert spilled(cluster[0])["pages"] > 0


def _held(cluster: Cluster) -> int:
    return sum(int(daemon.status()["pool"]["keys"]) for daemon in cluster.daemons)


def test_each_page_counts_once_while_a_pool_spills_and_evicts(make_cluster: MakeCluster) -> None:
    """The writer is faster than the spill, so eviction also takes pages that are on their way."""
    cluster = make_cluster(3, pool_size=POOL, spill_bytes_per_s=BUDGET)
    writer = cluster[0].attach(page_bytes=PAGE)
    keys = keys_of("set at a", 6 * POOL // PAGE)
    for at in range(0, len(keys), 8):
        assert all(writer.set(keys[at : at + 8]))
    eventually(lambda: at_rest(cluster[0]), 20)

    def counts_each_once(daemon: Daemon) -> bool:
        status = daemon.status()
        pool, spill = status["pool"], status["spill"]
        return bool(pool["evictions"] + spill["pages"] + pool["keys"] == pool["sets"])

    for daemon in cluster.daemons:
        # A peer that has taken a page counts as its holder a moment before the giver drops it.
        eventually(partial(counts_each_once, daemon), 20, daemon.node_id)
        assert daemon.status()["pool"]["removals"] == 0
    assert spilled(cluster[0])["pages"] > 0
    assert cluster[0].status()["pool"]["evictions"] > 0
