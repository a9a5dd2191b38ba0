"""`peercachectl drain` with real daemons: sets stop, warm pages move, and readers miss nothing."""

import pytest
from harness.background import Background
from harness.cluster import Cluster
from harness.ctl import ctl_process
from harness.fixtures import MakeCluster
from harness.pages import keys_of
from harness.waiting import eventually

from peercache_client import Status
from peercached.admin.client import AdminClient, Refused


def test_draining_node_refuses_and_reports_sets_until_undrain(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(2)
    before, refused = keys_of("before", 8), keys_of("refused", 8)
    pages = cluster[1].attach()
    assert all(pages.set(before))
    result = cluster[1].drain(stay=True)
    assert result["state"] == "drained"
    assert result["handed_pages"] == cluster[0].status()["handover"]["adopted"] == 8
    assert pages.set(refused) == [Status.draining] * 8
    assert not any(pages.get(refused))
    assert pages.has(before), "its own workers find their pages at the peer"
    assert cluster[1].status()["pool"]["keys"] == 0
    assert cluster[1].status()["drain"]["refused_pages"] == 8
    said = cluster[1].sentences()
    assert "takes no new pages because of a drain (state: drained); 8 were refused" in said

    assert ctl_process(cluster[1], "undrain").stdout == "Takes sets again.\n"
    assert all(pages.set(refused))
    assert pages.has(refused)
    assert cluster[0].attach().has(refused)
    assert "takes no new pages" not in cluster[1].sentences()
    cluster.wait_complete()


def test_a_page_that_another_node_has_is_not_copied_again(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(3)
    keys = keys_of("twice", 16)
    assert all(cluster[0].attach().set(keys))
    assert all(cluster[2].attach().set(keys))
    result = cluster[2].drain(stay=True)
    assert result["handed_pages"] == 16
    assert [daemon.status()["handover"]["adopted"] for daemon in cluster.daemons] == [0, 0, 0]
    assert cluster[2].attach().has(keys)


def test_the_budget_takes_the_pages_used_last(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(2)
    pages = cluster[1].attach()
    cold, warm = keys_of("cold", 16), keys_of("warm", 16)
    assert all(pages.set(warm))
    assert all(pages.set(cold))
    assert pages.has(warm)
    result = cluster[1].drain(stay=False, bytes_max=16 * pages.page_bytes)
    assert (result["handed_pages"], result["complete"]) == (16, True)
    assert "16 were beyond the budget" in result["outcome"]
    cluster[0].wait_members(["a"])
    reader = cluster[0].attach()
    assert reader.has(warm)
    assert not any(reader.get(cold))


def test_drain_without_a_peer_reports_it_and_undrain_fails_after_leaving(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster(1)
    assert all(cluster[0].attach().set(keys_of("alone", 4)))
    done = ctl_process(cluster[0], "drain", "--stay")
    assert done.returncode == 4
    assert "0 of 4 pages were handed to peers; there is no other node" in done.stdout
    assert ctl_process(cluster[0], "undrain").returncode == 0
    assert ctl_process(cluster[0], "drain").returncode == 4
    late = ctl_process(cluster[0], "undrain")
    assert late.returncode == 4
    assert "restart the daemon" in late.stderr


def test_drain_reports_a_peer_full_of_warmer_pages(make_cluster: MakeCluster) -> None:
    sizes = ({"pool-size": "4MiB"}, {"pool-size": "64MiB"})
    cluster = make_cluster(2, spill_bytes_per_s=0, each=sizes)  # or the full pool makes room
    assert all(cluster[1].attach().set(keys_of("old", 32)))
    pages = cluster[0].attach()
    # Until an offer arrives, a page that nobody uses grows older, too.
    with Background(lambda: pages.set(keys_of("new", 64))) as using:
        using.wait_rounds(10)
        result = cluster[1].drain(stay=False)
    assert not result["complete"]
    assert "its pool is full of pages that were used more recently" in result["outcome"]
    assert result["state"] == "left"
    assert cluster[0].status()["handover"]["adopt_refused"] > 0
    cluster[0].wait_members(["a"])


def test_a_frozen_peer_keeps_no_drain_beyond_its_time_and_is_named(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster(2, member_ttl_s=60, heartbeat_interval_s=1)
    assert all(cluster[1].attach().set(keys_of("stuck", 16)))
    cluster[0].freeze()
    result = cluster[1].drain(seconds_max=5, stay=True)
    assert not result["complete"]
    assert result["handed_pages"] == 0
    outcome = "0 of 16 pages were handed to peers; then the 5 s were over (no answer from a: "
    assert outcome in result["outcome"]
    assert result["seconds"] < 30
    cluster[0].thaw()
    cluster.wait_complete()


def test_invalid_drain_limits_are_refused_and_no_drain_begins(three_nodes: Cluster) -> None:
    admin = AdminClient(str(three_nodes[0].admin_path))
    with admin, pytest.raises(Refused, match="between 0 and 3600"):
        admin.drain(1, 1e9, True)
    assert three_nodes[0].status()["drain"]["state"] == "no"


def test_a_cleared_namespace_is_not_handed_over(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(2)
    pages = cluster[1].attach()
    keys = keys_of("cleared", 8)
    assert all(pages.set(keys))
    assert pages.client.clear()
    eventually(lambda: cluster[1].status()["pool"]["keys"] == 0, 10)
    assert all(pages.set(keys[:3]))
    assert cluster[1].drain(stay=True)["handed_pages"] == 3
    reader = cluster[0].attach()
    assert reader.has(keys[:3])
    assert not any(reader.get(keys[3:]))
    assert reader.client.clear()
    assert not any(reader.get(keys[:3]))
    eventually(lambda: cluster[0].status()["pool"]["keys"] == 0, 10, "swept at the one that took")


def test_drain_asks_a_peer_again_that_gave_no_answer(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(2, member_ttl_s=60)
    keys = keys_of("kept", 64)
    assert all(cluster[1].attach().set(keys))
    cluster[0].freeze()
    with AdminClient(str(cluster[1].admin_path)) as admin:
        admin.drain(1 << 40, 60, stay=True)
    eventually(lambda: "drain: a " in cluster[1].log_text(), 30, "an offer to time out")
    cluster[0].thaw()
    eventually(lambda: cluster[1].status()["drain"]["state"] == "drained", 90)
    result = cluster[1].status()["drain"]
    assert result["handed_pages"] == 64, result
    assert cluster[0].attach().has(keys)
