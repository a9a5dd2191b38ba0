"""A daemon that is missing, dead or slow costs hits, or the requests that load at that moment."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import pages
import pytest
import torch
from controller_node import Shape
from harness.cluster import Cluster
from harness.fixtures import FAST
from harness.waiting import eventually
from linker_node import LinkerNode

from peercache_client import notes

SHAPE = Shape(tokens=1024)


@pytest.fixture
def cluster(patient_lookups: None) -> Iterator[Cluster]:
    """Two daemons that this test may harm; not started."""
    with Cluster(2, options={**FAST, "member-ttl-s": 60}) as made:
        yield made


def test_sglang_starts_without_the_daemon_and_shares_once_it_is_there(cluster: Cluster) -> None:
    with LinkerNode(cluster[0].socket_path, SHAPE, model="late") as node:
        tokens = pages.tokens("late", 64)
        assert not node.prefill(tokens)
        assert node.found(pages.tokens("other", 64)) == 0
        cluster.start()
        more = [pages.tokens(f"later {i}", 64) for i in range(400)]
        stored = eventually(lambda: next(each for each in [more.pop()] if node.prefill(each)))
        node.evict(1024)
        loading = node.load(stored)
        assert node.holds(loading, stored)


def test_a_page_lost_after_the_lookup_ends_the_requests_of_that_pass_alone(
    cluster: Cluster, caplog: Any
) -> None:
    cluster.start()
    with LinkerNode(cluster[0].socket_path, SHAPE, model="lost") as node:
        lost, kept = pages.tokens("lost", 64), pages.tokens("kept", 64)
        for tokens in (lost, kept):
            assert node.prefill(tokens)
        node.evict(1024)
        req = node.match(lost)
        form = node.linker._forms["kv"]
        last = node.cache.linker.hit_markers[req.rid].tail_hashes[-1]
        assert all(node.linker._client.remove([last + form.suffixes[1]]))
        [loading] = node.admit(req)
        assert node.forward(loading) == [req]
        assert req.discard_output_reason.status_code == 503
        notes.flush()
        assert "pages were lost after SGLang had looked them up" in caplog.text
        assert "1 of 4 pages were not got: 1 absent" in caplog.text
        node.allocator.free(loading.slots)
        assert node.holds(node.load(kept), kept)


def test_lookups_pin_the_pages_that_they_report(cluster: Cluster) -> None:
    """A load follows the lookup within milliseconds. Other pages may come in between."""
    cluster.start()
    with LinkerNode(cluster[0].socket_path, SHAPE, model="pinned") as node:
        tokens = pages.tokens("pinned", 64)
        assert node.prefill(tokens)
        node.evict(1024)
        asked: list[Any] = []
        ask = node.linker._client.forecast

        def spied(*arguments: Any, **options: Any) -> Any:
            asked.append(options)
            return ask(*arguments, **options)

        node.linker._client.forecast = spied
        assert node.found(tokens) == 64
        assert [each["hold_s"] for each in asked] == [5.0]


def test_a_daemon_killed_in_the_middle_of_a_load_ends_only_the_requests_that_load(
    cluster: Cluster,
) -> None:
    """The frozen holder makes sure that the load is under way when the daemon is killed."""
    cluster.start()
    tokens, other = pages.tokens("killed", 96), pages.tokens("computed", 96)
    options: dict[str, Any] = {"model": "killed", "timeout_s": 30}
    with (
        LinkerNode(cluster[1].socket_path, SHAPE, **options) as far,
        LinkerNode(cluster[0].socket_path, SHAPE, **options) as near,
    ):
        assert far.prefill(tokens)
        req = eventually(lambda: next((r for r in [near.match(tokens)] if r.host_hit_length), None))
        gets = int(cluster[0].status()["ipc"]["gets"])
        cluster[1].freeze()
        try:
            [loading] = near.admit(req)
            eventually(lambda: int(cluster[0].status()["ipc"]["gets"]) > gets)
            cluster[0].kill()
            assert near.forward(loading) == [req]
        finally:
            cluster[1].thaw()
        assert near.admit(near.match(other))[0].tokens == 0
        assert not near.prefill(other)
        near.allocator.free(loading.slots)
        cluster[0].start()
        again = eventually(
            lambda: next((r for r in [near.match(tokens)] if r.host_hit_length), None), 30
        )
        [loading] = near.admit(again)
        assert near.forward(loading) == []
        assert near.holds(loading, tokens)


def test_a_lookup_keeps_the_scheduler_for_50_ms_at_most(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("peercache_client.sglang.linker._LOOKUP_TIMEOUT_S", 0.05)
    cluster.start()
    with LinkerNode(cluster[0].socket_path, SHAPE, model="slow") as node:
        tokens = pages.tokens("slow", 64)
        assert node.prefill(tokens)
        waits = []
        cluster[0].freeze()
        try:
            for _ in range(5):
                began = time.thread_time(), time.monotonic()
                assert node.found(pages.tokens("others", 64)) == 0
                waits.append(time.monotonic() - began[1])
        finally:
            cluster[0].thaw()
        # 50 ms, and 100 ms for a reply in transit (docs/client.md); the machine may be busy.
        assert min(waits) < 0.15, waits


def test_stores_that_wait_for_a_slow_daemon_are_given_up(cluster: Cluster, caplog: Any) -> None:
    """Until then SGLang keeps their pages on the device."""
    cluster.start()
    with LinkerNode(cluster[0].socket_path, SHAPE, model="backlog", timeout_s=0.5) as node:
        assert node.prefill(pages.tokens("before", 32))
        blocked = threading.Event()
        node.linker._storing.put(lambda: blocked.wait(60) and None)
        for number in range(3):
            node.insert(pages.tokens(f"waits {number}", 32))
        time.sleep(0.6)
        blocked.set()
        assert not node.offloaded()
        notes.flush()
        assert "stores waited too long" in caplog.text
        assert eventually(lambda: node.prefill(pages.tokens(f"after {time.monotonic()}", 32)))


def test_calls_that_cannot_be_right_are_misses(cluster: Cluster, caplog: Any) -> None:
    """An exception would end SGLang's scheduler, and with it all requests."""
    from sglang.srt.mem_cache.hicache_storage import PoolName, PoolTransfer

    cluster.start()
    with LinkerNode(cluster[0].socket_path, SHAPE, model="wrong") as node:
        linker = node.linker
        nothing: Any = [None]
        assert linker.lookup("wrong", nothing) == []
        assert not linker.load("wrong", nothing)
        assert not linker.offload(nothing, session_id="wrong")
        assert not linker.pop_completed_offload()
        # The pool has no such slots, which the threads find out.
        wrong = PoolTransfer(
            name=PoolName.KV,
            keys=pages.hashes("wrong", 1),
            device_indices=torch.arange(16) + (1 << 40),
        )
        assert linker.offload([wrong])
        eventually(linker.num_completed_offloads)
        assert not linker.pop_completed_offload()
        assert linker.load("wrong", [wrong])
        index = linker.start_layer_wise_loading()
        assert not linker.finish_layer_wise_loading(index)
        notes.flush()
        assert "lookup failed, which is a bug" in caplog.text
        assert "a store failed: Pool" in caplog.text
        assert "a load failed: Pool" in caplog.text
