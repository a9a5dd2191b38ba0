"""Events of pages with real daemons: what a router hears is what `locate` finds."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
import zmq
from harness.clock import seconds
from harness.cluster import Cluster, Daemon, wait_views
from harness.ctl import ctl
from harness.disks import disk_options, wait_written
from harness.fixtures import MakeCluster
from harness.kv_subscriber import END, Picture, Place, Subscriber
from harness.pages import Pages, keys_of
from harness.secret_file import secret_file
from harness.waiting import eventually

from peercache_bench.process import free_port
from peercache_client.page_names import UNTOLD, PageHash
from peercached.admin.client import AdminClient
from peercached.kv_events.sockets import SUBSCRIPTIONS_MAX
from peercached.proto import router_pb2, router_pb2_grpc
from peercached.timeout import within

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


def free_pair() -> int:
    """A port that is free, as is the next one."""
    return free_port("127.0.0.1", in_a_row=2)


def telling(make_cluster: MakeCluster, size: int = 3, **options: object) -> Cluster:
    return make_cluster(
        size, each=[{"kv-events-port": free_pair()} for _ in range(size)], **options
    )


def subscribe(daemon: Daemon, *, hears: bool = True, **options: Any) -> Subscriber:
    """Returns when its subscription counts."""
    router = Subscriber(daemon.host, int(str(daemon.options["kv-events-port"])), **options)
    if hears:
        assert router.take(10_000), "no batch after the subscription"
    return router


def counts(picture: dict[Place, set[bytes | int]]) -> dict[Place, int]:
    return {place: len(hashes) for place, hashes in picture.items()}


def hears(router: Subscriber, node: str, keys: Sequence[bytes], medium: str = "") -> None:
    """Waits until the router knows these pages at the node, and no others."""

    def same() -> bool:
        router.take()
        return router.held(node, medium=medium) == hashes_of(keys)

    eventually(same, what=lambda: f"{len(keys)} pages of {node}; it has {counts(router.known())}")


def agrees(
    router: Subscriber, daemon: Daemon, keys: Sequence[bytes], namespace: str = "test"
) -> None:
    """Waits until the router knows exactly what `locate` finds of these keys."""
    found: dict[Place, set[bytes | int]] = {}

    def same() -> bool:
        found.clear()
        with AdminClient(str(daemon.admin_path)) as admin:
            for key in keys:
                for holder in admin.locate(namespace, key).holders:
                    medium = "CPU" if holder.resident else "STORAGE"
                    if not holder.suspect:
                        place = (holder.node_id, namespace, medium)
                        found.setdefault(place, set()).update(hashes_of([key]))
        router.take()
        return router.known() == found

    eventually(
        same,
        30,
        what=lambda: f"the router to know {counts(found)}; it knows {counts(router.known())}",
    )


def kv_events(daemon: Daemon) -> dict[str, Any]:
    told: dict[str, Any] = daemon.status()["kv_events"]
    return told


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


def test_pages_that_leave_the_pool_are_told_on_disk_and_then_not_at_all(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    each = [
        one | {"kv-events-port": free_pair(), "pool-size": "8MiB", "disk_size": "32MiB"}
        for one in disk_options(tmp_path, "ab")
    ]
    cluster = make_cluster(2, each=each)
    holder, teller = cluster[1], cluster[0]
    worker = holder.attach(page_bytes=PAGE)
    keys = keys_of("many", 1000)  # twice the disk
    with subscribe(teller) as router:
        for at in range(0, len(keys), 20):
            set_named(worker, keys[at : at + 20])
            wait_written(holder)
        agrees(router, teller, keys)
        assert router.held("b", medium="STORAGE") and router.held("b", medium="CPU")
        told = {each for hashes in router.known().values() for each in hashes}
        assert len(told) < len(keys), "the disk was to be full"


def test_what_was_removed_or_cleared_is_told_as_gone(make_cluster: MakeCluster) -> None:
    cluster = telling(make_cluster)
    keys = keys_of("page", 30)
    workers = [daemon.attach(page_bytes=PAGE) for daemon in cluster.daemons]
    other = cluster[1].attach(page_bytes=PAGE, namespace="other")
    with subscribe(cluster[0]) as router:
        for place, worker in enumerate(workers):
            set_named(worker, keys[10 * place : 10 * place + 10])
        set_named(other, keys[:5])
        eventually(lambda: router.take() >= 0 and len(router.held("b", "other")) == 5)
        assert all(workers[2].client.remove(keys[5:15]))
        hears(router, "a", keys[:5])
        hears(router, "b", keys[15:20])
        assert workers[1].client.clear()
        eventually(lambda: router.take() >= 0 and not router.held("a") | router.held("c"))
        assert router.held("b", "other") == hashes_of(keys[:5]), "only one namespace was cleared"
        # The same hashes again, of pages with other digests.
        set_named(workers[1], keys[:3])
        set_named(workers[0], keys[:3])
        hears(router, "b", keys[:3])
        hears(router, "a", keys[:3])


@pytest.mark.parametrize("how", ["killed", "frozen", "stopped"])
def test_pages_of_a_node_that_is_away_are_gone_until_it_is_back(
    make_cluster: MakeCluster, how: str
) -> None:
    cluster = telling(make_cluster)
    teller, holder = cluster[0], cluster[2]
    keys, more = keys_of("page", 20), keys_of("more", 10)
    worker = holder.attach(page_bytes=PAGE)
    with subscribe(teller) as router:
        set_named(worker, keys)
        hears(router, holder.node_id, keys)
        if how == "killed":
            holder.kill()
        elif how == "frozen":
            holder.freeze()
        else:
            holder.stop()
        hears(router, holder.node_id, [])
        set_named(cluster[1].attach(page_bytes=PAGE), more)
        hears(router, cluster[1].node_id, more)
        if how == "frozen":
            holder.thaw()
            hears(router, holder.node_id, keys)
        else:
            cluster.start_again(holder)
            set_named(holder.attach(page_bytes=PAGE), more)
            hears(router, holder.node_id, more)
        agrees(router, teller, [*keys, *more])


def test_a_replay_repairs_a_gap_from_what_is_kept(make_cluster: MakeCluster) -> None:
    cluster = telling(make_cluster, 2)
    worker = cluster[1].attach(page_bytes=PAGE)
    keys = keys_of("page", 40)
    with subscribe(cluster[0]) as witness, subscribe(cluster[0]) as router:
        set_named(worker, keys[:10])
        for each in (witness, router):
            hears(each, "b", keys[:10])
        router.cut()
        for at in (10, 20):
            set_named(worker, keys[at : at + 10])
            hears(witness, "b", keys[: at + 10])
        assert worker.client.remove(keys[:5])
        hears(witness, "b", keys[5:30])
        router.connect()
        set_named(worker, keys[30:])
        hears(router, "b", keys[5:])
        assert router.gaps == 1
        assert kv_events(cluster[0])["replays"] == 1, "one gap"
        assert kv_events(cluster[0])["snapshots"] == 0


def test_a_router_that_comes_late_gets_a_snapshot(make_cluster: MakeCluster) -> None:
    cluster = telling(make_cluster)
    keys = keys_of("page", 60)
    for place, daemon in enumerate(cluster.daemons):
        set_named(daemon.attach(page_bytes=PAGE), keys[20 * place : 20 * place + 20])
    eventually(lambda: kv_events(cluster[0])["told"] == 60)
    with subscribe(cluster[0]) as router:
        assert router.begin() == ""
        agrees(router, cluster[0], keys)
        assert kv_events(cluster[0])["snapshots"] == 1
        # Its numbers are below those of what comes now.
        set_named(cluster[1].attach(page_bytes=PAGE), more := keys_of("more", 5))
        agrees(router, cluster[0], [*keys, *more])
        assert router.gaps == 0


def test_after_a_restart_of_the_teller_a_gap_leads_to_a_snapshot(
    make_cluster: MakeCluster,
) -> None:
    cluster = telling(make_cluster)
    teller, holder, other = cluster.daemons
    worker = holder.attach(page_bytes=PAGE)
    keys = keys_of("page", 30)
    with subscribe(teller) as router:
        set_named(worker, keys[:20])
        set_named(other.attach(page_bytes=PAGE), keys[20:])
        set_named(teller.attach(page_bytes=PAGE), keys_of("lost", 5))
        hears(router, holder.node_id, keys[:20])
        teller.stop()
        assert all(worker.client.remove(keys[:10]))
        other.kill()
        teller.start()
        wait_views(teller, holder)
        eventually(lambda: kv_events(teller)["told"] == 10, 30)
        set_named(worker, more := keys_of("more", 5))
        agrees(router, teller, [*keys, *more, *keys_of("lost", 5)])
        assert router.gaps >= 1
        # The names of pages that it did not see come: from the node that has them.
        assert kv_events(teller)["names_asked"] >= 10
        assert kv_events(teller)["by_digest"] == 0


def test_each_kind_of_hash_is_told_as_it_was_given(make_cluster: MakeCluster) -> None:
    cluster = telling(make_cluster, 2)
    hashes: list[PageHash] = [b"x", b"y" * 32, -5, (1 << 63) + 7, 7, UNTOLD, None]
    told = {b"x", b"y" * 32, -5, (1 << 63) + 7, 7}
    worker = cluster[1].attach(page_bytes=PAGE)
    keys = keys_of("page", len(hashes))
    offsets = [i * PAGE for i in range(len(keys))]
    with subscribe(cluster[0]) as router:
        assert all(worker.client.batch_set(keys, worker.region, offsets, PAGE, hashes=hashes))
        eventually(lambda: router.take() >= 0 and len(router.held("b")) == len(hashes) - 1)
        [digest] = router.held("b") - told
        with AdminClient(str(cluster[0].admin_path)) as admin:
            located = admin.locate("test", keys[-1])
        # The first 8 bytes of the digest, as every engine's decoder takes them.
        assert digest == int.from_bytes(bytes.fromhex(located.digest)[:8], "little", signed=True)


def test_a_page_keeps_its_name_at_a_node_that_it_moves_to(make_cluster: MakeCluster) -> None:
    cluster = telling(make_cluster)
    keys = keys_of("page", 10)
    set_named(cluster[1].attach(page_bytes=PAGE), keys)
    with subscribe(cluster[0]) as router:
        router.begin()
        hears(router, "b", keys)
        with AdminClient(str(cluster[1].admin_path)) as admin:
            admin.move("test", keys, "c")
        hears(router, "c", keys)
        hears(router, "b", [])
    cluster[0].stop()
    cluster[1].stop()
    cluster[0].start()
    wait_views(cluster[0], cluster[2])
    with subscribe(cluster[0]) as router:
        eventually(lambda: router.begin() == "" and router.held("c") == hashes_of(keys), 30)


def test_a_node_may_tell_its_own_pages_only(make_cluster: MakeCluster) -> None:
    cluster = telling(make_cluster, 2, kv_events_of="own")
    keys = keys_of("page", 10)
    with subscribe(cluster[0]) as router:
        set_named(cluster[1].attach(page_bytes=PAGE), keys)
        set_named(cluster[0].attach(page_bytes=PAGE), mine := keys_of("mine", 10))
        hears(router, "a", mine)
        assert not router.held("b")
    assert kv_events(cluster[0])["of"] == "own"
    assert "events_of_own_pages" not in cluster[0].codes()


def test_requests_that_make_no_sense_are_answered_with_the_reason(
    make_cluster: MakeCluster,
) -> None:
    cluster = telling(make_cluster, 1)
    with subscribe(cluster[0]) as router:
        future = int(kv_events(cluster[0])["next_number"], 16) + 1000
        [(reason, seq, payload)] = router.replay(future)
        assert (seq, payload) == (END, b"")
        assert reason.startswith(b"no such batch yet: "), reason
        for frames in ([b"", b"short"], [b"x", bytes(8)], [b"", bytes(8), b"more"], [b""]):
            reason = router.ask(frames)
            assert reason == b"a request is an empty frame and a number of 8 bytes", frames
        assert kv_events(cluster[0])["replays_refused"] == 5
        # A frame beyond the limit ends the connection.
        router.send([b"", bytes(100_000)])
        set_named(cluster[0].attach(page_bytes=PAGE), keys_of("page", 5))
        hears(router, "a", keys_of("page", 5))


def test_only_the_keys_of_the_cluster_open_the_ports(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    secret = secret_file(tmp_path, b"a secret of the whole cluster")
    cluster = telling(make_cluster, 2, cluster_secret_file=secret)
    keys = keys_of("page", 10)
    shown = json.loads(ctl(cluster[0], "kv-events", "--keys", secret, "--json").stdout)
    server, public, private = (
        shown[name] for name in ("server_key", "client_public_key", "client_secret_key")
    )
    assert shown["auth"] == "curve"
    number = int(kv_events(cluster[0])["next_number"], 16)
    assert shown["next_number"].isdecimal() and int(shown["next_number"]) <= number
    assert private not in ctl(cluster[0], "kv-events").stdout
    assert "(curve), 0 subscribers" in ctl(cluster[0], "status").stdout
    stranger, stranger_secret = (key.decode() for key in zmq.curve_keypair())
    with (
        subscribe(cluster[0], keys=(server, public, private)) as router,
        subscribe(cluster[0], hears=False) as plain,
        subscribe(cluster[0], hears=False, keys=(server, stranger, stranger_secret)) as other,
    ):
        worker = cluster[1].attach(page_bytes=PAGE)
        set_named(worker, keys)
        hears(router, "b", keys)
        assert router.begin() == "" and router.held("b") == hashes_of(keys)
        assert plain.take() == other.take() == 0
        for refused in (plain, other):
            assert not refused.answers(wait_ms=300), "a replay without a key"
        counted = kv_events(cluster[0])
        assert counted["subscribers"] == 1
        assert counted["handshakes_refused"] >= 2


def test_the_example_subscriber_prints_pages_that_come_and_go(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    secret = secret_file(tmp_path, b"a secret of the whole cluster")
    cluster = telling(make_cluster, 2, cluster_secret_file=secret)
    worker = cluster[1].attach(page_bytes=PAGE)
    set_named(worker, keys_of("before", 1))
    eventually(lambda: kv_events(cluster[0])["told"] == 1)
    shown = json.loads(ctl(cluster[0], "kv-events", "--keys", secret, "--json").stdout)
    names = ("server_key", "client_public_key", "client_secret_key")
    port = str(cluster[0].options["kv-events-port"])
    top = Path(__file__).parents[2]
    script = top / "deploy/examples/events/subscribe.py"
    shown_in_docs = (top / "docs/routers.md").read_text().split("```python\n")[1].split("```")[0]
    assert script.read_text().endswith(shown_in_docs)
    heard: list[str] = []
    with subprocess.Popen(
        [sys.executable, script, cluster[0].host, port, *(shown[name] for name in names)],
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdout is not None
        reader = threading.Thread(target=lambda: heard.extend(iter(program.stdout.readline, "")))  # type: ignore[union-attr]
        reader.start()
        try:
            said = str(list(hashes_of(keys_of("before", 1))))
            eventually(lambda: f"kv@b@test BlockStored CPU {said}\n" in heard)
            assert heard[0].startswith("forget all")
            set_named(worker, keys_of("after", 1))
            said = str(list(hashes_of(keys_of("after", 1))))
            eventually(lambda: f"kv@b@test BlockStored CPU {said}\n" in heard)
            worker.client.remove(keys_of("after", 1))
            eventually(lambda: f"kv@b@test BlockRemoved CPU {said}\n" in heard)
        finally:
            program.kill()
        reader.join()


def test_a_subscriber_that_takes_nothing_costs_the_others_nothing(
    make_cluster: MakeCluster,
) -> None:
    cluster = telling(make_cluster, 1)
    worker = cluster[0].attach(page_bytes=4096, room_pages=2000)
    with subscribe(cluster[0], behind=1) as idle, subscribe(cluster[0]) as router:
        assert kv_events(cluster[0])["subscribers"] == 2
        for turn in range(40):
            set_named(worker, keys_of(f"turn {turn}", 2000))
        expected = {h for turn in range(40) for h in hashes_of(keys_of(f"turn {turn}", 2000))}
        eventually(lambda: router.take() >= 0 and len(router.held("a")) >= 10_000)
        told = kv_events(cluster[0])["told"]
        eventually(lambda: router.take() >= 0 and len(router.held("a")) == told)
        assert router.held("a") <= expected and router.gaps == 0
        # When it reads again it sees the gap, and what it missed comes.
        eventually(lambda: idle.take() >= 0 and idle.held("a") == router.held("a"))
        idle.repair()
        assert idle.held("a") == router.held("a")
    eventually(lambda: kv_events(cluster[0])["subscribers"] == 0)


@pytest.mark.parametrize("port", ["events", "replays"])
def test_a_crowd_silences_nobody_and_leaves_the_port_open(
    make_cluster: MakeCluster, port: str
) -> None:
    cluster = telling(make_cluster, 1)
    worker = cluster[0].attach(page_bytes=PAGE)
    keys = keys_of("page", 30)
    number = int(str(cluster[0].options["kv-events-port"])) + (port == "replays")
    with subscribe(cluster[0]) as router, contextlib.ExitStack() as crowd:
        assert router.begin() == ""

        def more_come() -> bool:
            for _ in range(16):  # fewer than may wait to be accepted
                one = crowd.enter_context(socket.socket())
                one.setblocking(False)
                one.connect_ex((cluster[0].host, number))
            return bool(kv_events(cluster[0])["shut_crowd"])

        eventually(more_come)
        set_named(worker, keys[:10])
        hears(router, "a", keys[:10])
        assert router.begin() == ""
        crowd.close()
        set_named(worker, keys[10:])
        hears(router, "a", keys)
        with subscribe(cluster[0]) as late:
            assert late.begin() == ""
            hears(late, "a", keys)
            eventually(lambda: kv_events(cluster[0])["subscribers"] == 2)
    eventually(lambda: kv_events(cluster[0])["subscribers"] == 0)


def test_what_a_subscriber_asks_for_is_no_matter_to_others(make_cluster: MakeCluster) -> None:
    cluster = telling(make_cluster, 1)
    worker = cluster[0].attach(page_bytes=PAGE)
    with (
        subscribe(cluster[0]) as router,
        subscribe(cluster[0], topic=b"kv@a") as greedy,
        subscribe(cluster[0]) as rude,
    ):
        for number in range(100):
            greedy.socket.subscribe(b"topic %d" % number)
        for topic in (b"", b"never", b"kv@a"):
            rude.socket.unsubscribe(topic)
        set_named(worker, keys_of("page", 10))
        for each in (router, greedy):
            hears(each, "a", keys_of("page", 10))
        with subscribe(cluster[0]) as late:
            assert late.begin() == ""
            assert kv_events(cluster[0])["subscribers_ended"] == 0
            topics = itertools.count()

            def is_ended() -> bool:
                for _ in range(500):
                    greedy.socket.subscribe(b"one more %d" % next(topics))
                greedy.take(1)  # ZMQ sends on
                return bool(kv_events(cluster[0])["subscribers_ended"])

            eventually(is_ended)
            assert next(topics) + 101 > SUBSCRIPTIONS_MAX
            assert router.take(5000) and late.take(5000), "a pulse"
            set_named(worker, keys_of("more", 10))
            for each in (router, late):
                hears(each, "a", [*keys_of("page", 10), *keys_of("more", 10)])
            assert router.gaps == late.gaps == 0


async def test_a_call_of_grpc_hears_the_same_events(make_cluster: MakeCluster) -> None:
    ports = [free_port("127.0.0.1") for _ in range(2)]
    cluster = make_cluster(
        2, each=[{"kv-events-port": free_pair(), "router-port": port} for port in ports]
    )
    teller = cluster.daemons[0]
    held, more = keys_of("held", 40), keys_of("more", 40)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{ports[0]}") as channel:
        stub = router_pb2_grpc.RouterStub(channel)  # type: ignore[no-untyped-call]
        with (
            Pages(cluster.daemons[1].socket_path) as worker,
            subscribe(teller) as router,
        ):
            set_named(worker, held)
            hears(router, "b", held)
            call, heard = stub.Events(router_pb2.EventsRequest(start=0)), Heard()
            await heard.until(call, "b", hashes_of(held))
            assert kv_events(teller)["followers"] == 1
            set_named(worker, more)
            worker.client.remove(held)
            await heard.until(call, "b", hashes_of(more))
            hears(router, "b", more)
            assert heard.known() == router.known()
    eventually(lambda: kv_events(teller)["followers"] == 0)


class Heard(Picture):
    """A router's picture, from a call of gRPC."""

    async def until(self, call: Any, node: str, hashes: set[bytes | int]) -> None:
        while self.held(node) != hashes:
            batch = await within(seconds(30), call.read())
            self.apply(batch.topic.encode(), batch.payload)
