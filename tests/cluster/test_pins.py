"""Pins with real daemons: pages stay for the time asked for, within bounds, and can be seen."""

import asyncio
import json
import time
from pathlib import Path

import pytest
from harness.cluster import Cluster, Daemon
from harness.ctl import ctl_process
from harness.disks import disk_options
from harness.fixtures import MakeCluster
from harness.pages import Pages, keys_of
from harness.scrape import Samples, scrape
from harness.waiting import eventually

from peercache_client import AsyncClient, Status
from peercached.admin.client import AdminClient, Refused
from peercached.admin.pages import Pages as PageList

PAGE = 256 << 10
POOL = "32MiB"  # 128 pages less headers
PINNED_MAX = 8  # of one namespace, with a pin_share of 1/8
MISTAKES = [
    (["pin", "k", "--for", "2h"], "a pin for 7200 seconds: at most 3600 can be had"),
    (["pin", "k", "--for", "0s"], "a pin for 0 seconds: give a time above 0"),
    (["pin", "k", "--for", "soon"], "'soon' is not a time; give seconds, or 90s, 10m, 1h"),
    (["pages"], "say which pages: --hot or --pinned"),
]


def listed(daemon: Daemon, order: str, namespace: str = "", limit: int = 100) -> PageList:
    with AdminClient(str(daemon.admin_path)) as admin:
        return admin.pages(order, limit, namespace)


def pinned_pages(daemon: Daemon) -> int:
    return int(daemon.status()["pins"]["pages"])


def turn_over(writer: Pages, name: str) -> None:
    """Sets more than a pool of other pages."""
    for turn in range(5):
        assert all(writer.set(keys_of(f"{name} {turn}", 64)))


def small(make_cluster: MakeCluster, size: int = 3, **options: object) -> Cluster:
    return make_cluster(size, pool_size=POOL, spill_bytes_per_s=0, **options)


@pytest.mark.parametrize("at_holder", [True, False], ids=["at the holder", "over the network"])
def test_pinned_pages_survive_pool_turnover_until_the_pin_ends(
    make_cluster: MakeCluster, at_holder: bool
) -> None:
    cluster = small(make_cluster)
    holder, reader = cluster[0], cluster[1]
    writer = holder.attach(page_bytes=PAGE)
    client = reader.attach(page_bytes=PAGE)
    promised, usual = keys_of("promised", PINNED_MAX), keys_of("usual", PINNED_MAX)
    assert all(writer.set(promised)) and all(writer.set(usual))
    asker = writer if at_holder else client
    assert asker.client.pin(promised, 600) == [Status.ok] * PINNED_MAX
    assert pinned_pages(holder) == PINNED_MAX
    assert [pinned_pages(daemon) for daemon in cluster.daemons[1:]] == [0, 0]
    turn_over(writer, "new")
    eventually(lambda: client.client.batch_exists(usual) == 0, what="owners to be told")
    assert client.has(promised)
    assert asker.client.pin(promised, 0.5) == [Status.ok] * PINNED_MAX, "the time counts anew"
    eventually(lambda: pinned_pages(holder) == 0, what="the pins to end")
    turn_over(writer, "newer")
    turn_over(writer, "newest")
    eventually(lambda: client.client.batch_exists(promised) == 0, what="owners to be told")


def test_a_pin_beyond_the_bound_is_refused_with_value_and_limit(make_cluster: MakeCluster) -> None:
    cluster = small(make_cluster, 2)
    holder = cluster[0]
    keys = keys_of("many", 2 * PINNED_MAX)
    writer = holder.attach(page_bytes=PAGE)
    other = holder.attach(page_bytes=PAGE, namespace="other")
    assert all(writer.set(keys)) and all(other.set(keys))
    share = 4 << 20
    fits = share // 2 // PAGE
    assert writer.client.pin(keys, 600) == [Status.ok] * fits + [Status.no_space] * fits
    why = (
        f"a page of {PAGE} bytes beyond the {fits * PAGE} bytes that its namespace has pinned "
        f"here: {share // 2} are the limit (half of pin_share)"
    )
    with AdminClient(str(cluster[1].admin_path)) as admin:
        outcomes, told = admin.pin("test", keys, 600)
        assert outcomes == ["ok"] * fits + ["no_space"] * fits
        assert told == f"{holder.node_id}: {why}"
    assert other.client.pin(keys[:fits], 600) == [Status.ok] * fits
    status = holder.status()["pins"]
    assert (status["pages"], status["bytes"], status["bytes_max"]) == (2 * fits, share, share)
    assert {one["pages"] for one in status["namespaces"]} == {fits}
    assert status["refused"] == 2 * fits
    said = ctl_process(holder, "pin", keys[-1].decode(), "-n", "test", "--for", "1m")
    assert said.returncode == 4 and f"{share} are the limit (pin_share)" in said.stderr
    assert all(writer.set(keys_of("new", 64))), "sets go on"


def test_a_quota_bounds_pins_as_well(make_cluster: MakeCluster) -> None:
    (holder,) = small(make_cluster, 1, namespace_quotas="test=0.0625").daemons
    writer = holder.attach(page_bytes=PAGE)
    keys = keys_of("many", 6)
    assert all(writer.set(keys))
    assert writer.client.pin(keys, 600).count(Status.ok) == 4
    said = ctl_process(holder, "pin", keys[-1].decode(), "-n", "test", "--for", "1m")
    assert "1048576 are the limit (half of its quota)" in said.stderr


def test_nobody_pins_where_pin_share_is_0(make_cluster: MakeCluster) -> None:
    (holder,) = small(make_cluster, 1, pin_share=0).daemons
    writer = holder.attach(page_bytes=PAGE)
    assert all(writer.set([b"k"]))
    assert writer.client.pin([b"k"], 600) == [Status.no_space]


def test_a_prefix_ends_at_the_first_key_that_no_node_has(make_cluster: MakeCluster) -> None:
    cluster = small(make_cluster)
    keys = keys_of("chain", 6)
    assert all(cluster[0].attach(page_bytes=PAGE).set(keys[:2]))
    assert all(cluster[1].attach(page_bytes=PAGE).set([keys[2], *keys[4:]]))
    client = cluster[2].attach(page_bytes=PAGE).client
    ok, absent = Status.ok, Status.absent
    assert client.pin(keys, 600, prefix=True) == [ok, ok, ok, absent, absent, absent]
    assert [pinned_pages(daemon) for daemon in cluster.daemons] == [2, 1, 0]
    assert client.pin(keys, 600) == [ok, ok, ok, absent, ok, ok]
    assert client.pin([b"", keys[0]], 600) == [Status.bad_key, ok]
    assert client.unpin(keys) == [ok, ok, ok, absent, ok, ok]
    assert client.unpin(keys) == [absent] * 6
    assert [pinned_pages(daemon) for daemon in cluster.daemons] == [0, 0, 0]


def test_a_pin_here_brings_the_pages_and_outlives_their_holder(make_cluster: MakeCluster) -> None:
    cluster = small(make_cluster)
    keys = keys_of("prefix", 6)
    writer, reader = (cluster[i].attach(page_bytes=PAGE) for i in (0, 1))
    assert all(writer.set(keys))
    assert reader.client.pin(keys, 600, prefix=True, here=True) == [Status.ok] * 6
    assert [pinned_pages(daemon) for daemon in cluster.daemons] == [0, 6, 0]
    before = cluster[1].status()["operations"]["get_local"]
    assert reader.has(keys)
    assert cluster[1].status()["operations"]["get_local"] == before + 6
    names = {name for page in listed(cluster[1], "pinned").pages for name in page.holders}
    assert names == {cluster[0].node_id, cluster[1].node_id}
    turn_over(reader, "new")
    cluster[0].kill()
    assert reader.has(keys), "the pages here are pinned"


def test_unpin_finds_every_node_that_pinned_a_page_however_many(make_cluster: MakeCluster) -> None:
    """An owner that is asked for a page's holders names three of them."""
    cluster = small(make_cluster, 6)
    keys = keys_of("popular", 4)
    workers = [daemon.attach(page_bytes=PAGE) for daemon in cluster.daemons]
    assert all(workers[0].set(keys))
    for worker in workers:
        assert all(worker.client.pin(keys, 600, here=True))
    assert [pinned_pages(daemon) for daemon in cluster.daemons] == [4] * 6
    assert workers[3].client.unpin(keys) == [Status.ok] * 4
    assert [pinned_pages(daemon) for daemon in cluster.daemons] == [0] * 6


def test_a_pin_here_stops_at_the_bound(make_cluster: MakeCluster) -> None:
    cluster = small(make_cluster)
    keys = keys_of("prefix", 40)
    writer, reader = (cluster[i].attach(page_bytes=PAGE) for i in (0, 1))
    assert all(writer.set(keys))
    statuses = reader.client.pin(keys, 600, here=True)
    assert statuses == [Status.ok] * PINNED_MAX + [Status.no_space] * 32
    brought = cluster[1].status()["handover"]["replicated"]
    assert brought == 32, "the first part of 8 MiB, and no second one"


def test_a_removal_wins_over_a_pin(make_cluster: MakeCluster) -> None:
    cluster = small(make_cluster)
    keys = keys_of("gone", 4)
    writer, reader = (cluster[i].attach(page_bytes=PAGE) for i in (0, 1))
    assert all(writer.set(keys))
    assert all(reader.client.pin(keys, 600, here=True))
    assert all(reader.client.pin(keys, 600))
    assert reader.client.remove(keys[:2]) == [Status.ok] * 2
    assert reader.get(keys[:2]) == [Status.absent] * 2
    assert pinned_pages(cluster[1]) == 2
    assert writer.client.clear()
    eventually(lambda: pinned_pages(cluster[1]) == 0, what="the clear to end the pins")
    assert cluster[1].status()["pool"]["pins"] == 0


def test_a_drain_hands_pinned_pages_over(make_cluster: MakeCluster) -> None:
    cluster = small(make_cluster)
    keys = keys_of("warm", 6)
    assert all(cluster[2].attach(page_bytes=PAGE).set(keys))
    reader = cluster[0].attach(page_bytes=PAGE)
    assert all(reader.client.pin(keys, 600))
    assert cluster[2].drain(stay=True)["handed_pages"] == 6
    assert pinned_pages(cluster[2]) == 0
    assert reader.has(keys)


def test_pages_on_disk_are_read_and_pinned(make_cluster: MakeCluster, tmp_path: Path) -> None:
    disks = disk_options(tmp_path, "abc")
    cluster = small(make_cluster, each=disks)
    keys = keys_of("cold", 4)
    writer, reader = (cluster[i].attach(page_bytes=PAGE) for i in (0, 1))
    for here in (False, True):
        assert all(writer.set(keys))
        eventually(lambda: cluster[0].status()["disk"]["queued_pages"] == 0, what="the disk")
        with AdminClient(str(cluster[0].admin_path)) as admin:
            admin.evict_coldest(None)
        assert all(reader.client.pin(keys, 600, here=here))
        assert pinned_pages(cluster[int(here)]) == 4
        assert reader.has(keys)
        assert all(reader.client.unpin(keys))


def test_pins_are_visible_and_the_command_line_steers_them(make_cluster: MakeCluster) -> None:
    cluster = small(make_cluster)
    writer = cluster[0].attach(page_bytes=PAGE)
    assert all(writer.set([b"a", b"b"]))
    said = ctl_process(cluster[1], "pin", "a", "b", "nowhere", "-n", "test", "--for", "10m")
    assert said.returncode == 1, "one key is nowhere"
    assert said.stdout.splitlines() == [
        "pinned for 10 min 0 s  a",
        "pinned for 10 min 0 s  b",
        "absent  nowhere",
    ]
    pages = json.loads(ctl_process(cluster[0], "pages", "--pinned", "--json").stdout)["pages"]
    assert len(pages) == 2
    assert {(page["namespace"], page["bytes"]) for page in pages} == {("test", PAGE)}
    assert all(590 < page["left_s"] <= 600 for page in pages)
    digest = json.loads(ctl_process(cluster[0], "locate", "a", "-n", "test", "--json").stdout)[
        "digest"
    ]
    assert digest in {page["digest"] for page in pages}
    assert listed(cluster[0], "pinned", "another").pages == []
    assert "test 512 KiB" in ctl_process(cluster[0], "status").stdout
    samples = Samples(scrape(cluster[0]))
    assert (samples("pinned_pages"), samples("pinned_bytes")) == (2, 2 * PAGE)
    assert ctl_process(cluster[2], "unpin", "a", "b", "-n", "test").returncode == 0
    assert ctl_process(cluster[2], "unpin", "a", "-n", "test").returncode == 1
    words = ctl_process(cluster[0], "pages", "--pinned").stdout
    assert words.startswith(f"No page is pinned in the pool of {cluster[0].node_id} ")


def test_mistakes_are_refused_with_the_value(make_cluster: MakeCluster) -> None:
    (daemon,) = small(make_cluster, 1).daemons
    for words, sentence in MISTAKES:
        said = ctl_process(daemon, *words)
        assert said.returncode in (2, 4) and sentence in said.stderr, said
    client = daemon.attach().client
    for seconds in (0, -1, 3601, float("nan")):
        with pytest.raises(ValueError, match=f"for_s is {seconds}"):
            client.pin([b"k"], seconds)
    with AdminClient(str(daemon.admin_path)) as admin:
        with pytest.raises(Refused, match="4097 keys at once: 4096 are the limit"):
            admin.pin("test", [b"k%d" % i for i in range(4097)], 60)
        with pytest.raises(Refused, match="a list of 1001 pages: 1 to 1000"):
            admin.pages("hot", 1001)
        with pytest.raises(Refused, match="pages in the order 'cold'"):
            admin.pages("cold", 1)


def test_hot_pages_are_listed_with_their_reads_and_holders(make_cluster: MakeCluster) -> None:
    """A read over the network counts at the holder."""
    cluster = small(make_cluster)
    writer, reader = (cluster[i].attach(page_bytes=PAGE) for i in (0, 1))
    other = cluster[0].attach(page_bytes=PAGE, namespace="other")
    keys = keys_of("page", 8)
    assert all(writer.set(keys)) and all(other.set(keys))
    for _ in range(3):
        assert reader.has(keys[:1])
    assert writer.has(keys[:2])
    assert other.has(keys[:1])
    hot = listed(cluster[0], "hot").pages
    assert [page.reads for page in hot] == [4, 1, 1]
    assert {page.namespace for page in hot} == {"test", "other"}
    assert hot[0].bytes == PAGE and hot[0].holders == [cluster[0].node_id]
    assert hot[0].idle_s < 60
    assert [page.reads for page in listed(cluster[0], "hot", "test").pages] == [4, 1]
    assert len(listed(cluster[0], "hot", limit=1).pages) == 1
    assert listed(cluster[2], "hot").pages == []
    table = ctl_process(cluster[0], "pages", "--hot", "-n", "other").stdout
    assert hot[0].digest not in table and "other" in table


def test_pages_that_were_about_to_move_stay_where_they_are_pinned(
    make_cluster: MakeCluster,
) -> None:
    cluster = small(make_cluster, 2, write_policy="remote", replica_share=0)
    writer = cluster[0].attach(page_bytes=PAGE)
    pinned = 0
    for turn in range(20):
        keys = keys_of(f"page {turn}", 2)
        assert all(writer.set(keys))
        assert writer.client.pin(keys, 600, prefix=True) == [Status.ok] * 2
        pinned = sum(pinned_pages(daemon) for daemon in cluster.daemons)
        if cluster[0].status()["pins"]["pages"] == PINNED_MAX:
            break
    assert cluster[0].status()["pins"]["pages"] == PINNED_MAX
    other = keys_of("other", 8)
    assert all(writer.set(other))
    eventually(lambda: cluster[1].status()["pool"]["keys"] >= PINNED_MAX, what="pages to move")
    moved = time.monotonic() + 1.0
    eventually(lambda: time.monotonic() > moved, what="the old copies to go")
    assert sum(pinned_pages(daemon) for daemon in cluster.daemons) == pinned


def test_pages_of_a_silent_holder_are_suspect_because_it_may_have_them_pinned(
    make_cluster: MakeCluster,
) -> None:
    cluster = small(make_cluster, 3, member_ttl_s=30)
    holder, client = cluster[0], cluster[1].attach(page_bytes=PAGE).client
    keys = keys_of("page", 3)
    assert all(holder.attach(page_bytes=PAGE).set(keys))
    assert all(client.pin(keys, 600))
    holder.freeze()
    eventually(
        lambda: client.unpin(keys) and holder.node_id in cluster[1].suspects(),
        30,
        "a failed call to make the node suspect",
    )
    assert client.unpin(keys) == [Status.suspect] * 3
    assert client.pin(keys, 600) == [Status.suspect] * 3
    holder.thaw()
    eventually(lambda: holder.node_id not in cluster[1].suspects(), 30, "the node to answer again")
    assert client.unpin(keys) == [Status.ok] * 3


def test_the_asynchronous_client_pins_too(make_cluster: MakeCluster) -> None:
    cluster = small(make_cluster)
    keys = keys_of("page", 3)
    assert all(cluster[0].attach(page_bytes=PAGE).set(keys))

    async def pin() -> None:
        async with AsyncClient(str(cluster[1].socket_path), "test") as client:
            assert await client.pin(keys, 60, prefix=True, here=True) == [Status.ok] * 3
            assert pinned_pages(cluster[1]) == 3
            assert await client.unpin(keys) == [Status.ok] * 3

    asyncio.run(pin())
    assert pinned_pages(cluster[1]) == 0


def test_a_holder_that_is_gone_costs_no_deadline(make_cluster: MakeCluster) -> None:
    cluster = small(make_cluster)
    keys = keys_of("page", 3)
    assert all(cluster[0].attach(page_bytes=PAGE).set(keys))
    client = cluster[1].attach(page_bytes=PAGE).client
    cluster[0].kill()
    assert not any(client.pin(keys, 60))
