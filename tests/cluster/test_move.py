"""`peercachectl move` with real daemons: single pages go to a node, and readers miss nothing."""

import re
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from harness.background import Background
from harness.cluster import Daemon
from harness.ctl import ctl_process
from harness.fixtures import MakeCluster
from harness.pages import keys_of
from harness.waiting import eventually

from peercache_client import Status
from peercached.admin.client import AdminClient, Refused


def pool_pages(daemon: Daemon) -> int:
    return int(daemon.status()["pool"]["keys"])


def test_moved_pages_are_at_the_named_node_only_and_a_steady_reader_misses_none(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster(3)
    keys = keys_of("page", 64)
    assert all(cluster[0].attach().set(keys))
    reader = cluster[2].attach()
    missed: list[bytes] = []

    def read() -> None:
        missed.extend(key for key, ok in zip(keys, reader.get(keys), strict=True) if not ok)

    with Background(read), AdminClient(str(cluster[0].admin_path)) as admin:
        moved = admin.move("test", keys[:48], cluster[1].node_id)
        eventually(lambda: pool_pages(cluster[0]) == 16, what="our copies to go")
    assert (moved.pages, moved.bytes, moved.absent, moved.refused) == (48, 48 * 65_536, 0, 0)
    assert missed == []
    assert [pool_pages(daemon) for daemon in cluster.daemons] == [16, 48, 0]
    with AdminClient(str(cluster[2].admin_path)) as admin:
        holders = admin.locate("test", keys[0]).holders
    assert [holder.node_id for holder in holders] == [cluster[1].node_id]


def test_two_nodes_that_move_the_same_pages_to_each_other_lose_none(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster(2)
    keys = keys_of("page", 16)
    both = [daemon.attach(page_bytes=16 << 10) for daemon in cluster.daemons]
    names = [daemon.node_id for daemon in cluster.daemons]

    def move(place: int) -> int:
        with AdminClient(str(cluster[place].admin_path)) as admin:
            return int(admin.move("test", keys, names[1 - place]).pages)

    uses = [daemon.attach(page_bytes=16 << 10) for daemon in cluster.daemons]
    with (
        ThreadPoolExecutor(2) as at_once,
        Background(lambda: uses[0].get(keys)),
        Background(lambda: uses[1].get(keys)),
    ):
        for _ in range(3):
            for pages in both:
                assert all(pages.set(keys))
            list(at_once.map(move, (0, 1)))
            move(0)
            move(1)  # the copies that the first node gave away are still there, and are read
            gone = time.monotonic() + 1.0
            eventually(lambda: time.monotonic() > gone, what="the copies to go")  # noqa: B023
            for pages in both:
                assert pages.has(keys), "a node dropped a page for another that was about to go"


def test_moving_ends_a_pin_here(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(2)
    keys = keys_of("page", 4)
    pages = cluster[0].attach()
    assert all(pages.set(keys))
    assert all(pages.client.pin(keys, 600))
    with AdminClient(str(cluster[0].admin_path)) as admin:
        assert admin.move("test", keys, cluster[1].node_id).pages == 4
    eventually(lambda: pool_pages(cluster[0]) == 0, what="our copies to go")
    assert cluster[0].status()["pins"]["pages"] == 0
    assert pages.has(keys)


def test_a_pin_right_after_a_move_is_at_the_node_that_has_the_pages_now(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster(3)
    keys = keys_of("page", 4)
    assert all(cluster[0].attach().set(keys))
    here, elsewhere = (cluster[i].attach().client for i in (0, 2))
    for place, client in ((0, here), (1, elsewhere)):
        with AdminClient(str(cluster[place].admin_path)) as admin:
            assert admin.move("test", keys, cluster[1 - place].node_id).pages == 4
        assert client.pin(keys, 600) == [Status.ok] * 4
        eventually(lambda: pool_pages(cluster[place]) == 0, what="the old copies to go")  # noqa: B023
        assert cluster[1 - place].status()["pins"]["pages"] == 4


def test_pages_that_are_not_here_are_counted(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(3)
    assert all(cluster[0].attach().set([b"here"]))
    assert all(cluster[2].attach().set([b"elsewhere"]))
    said = ctl_process(
        cluster[0], "move", "here", "elsewhere", "nowhere", "-n", "test", "--to", cluster[1].node_id
    )
    assert said.returncode == 1
    assert said.stdout.splitlines() == [
        f"Moved 1 page (64 KiB) from {cluster[0].node_id} to {cluster[1].node_id}.",
        f"2 pages not in the pool of {cluster[0].node_id}.",
    ]


def test_a_node_that_cannot_have_pages_is_refused_in_words(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(3)
    assert all(cluster[0].attach().set([b"k"]))
    own, draining = cluster[0].node_id, cluster[2].node_id
    with AdminClient(str(cluster[2].admin_path)) as admin:
        admin.drain(0, 1, True)
    with AdminClient(str(cluster[0].admin_path)) as admin:
        names = ", ".join(sorted(daemon.node_id for daemon in cluster.daemons))
        with pytest.raises(Refused, match=f"there is no member 'nobody': there are {names}"):
            admin.move("test", [b"k"], "nobody")
        with pytest.raises(Refused, match=f"{re.escape(own)} is this node"):
            admin.move("test", [b"k"], own)

        def says_that_it_drains() -> bool:
            with pytest.raises(Refused) as refused:
                admin.move("test", [b"k"], draining)
            return f"{draining} drains, so it takes no pages" in str(refused.value)

        member = next(
            one
            for one in cluster[0].status()["membership"]["members"]
            if one["node_id"] == draining
        )
        assert member["state"] in ("alive", "leaving")
        eventually(
            lambda: any(
                one["node_id"] == draining and one["state"] == "leaving"
                for one in cluster[0].status()["membership"]["members"]
            ),
            what="the drain to be heard of",
        )
        assert says_that_it_drains()
    assert pool_pages(cluster[0]) == 1
