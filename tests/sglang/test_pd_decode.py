"""Prefill/decode clusters: a decode node restores the prefix that its probe promised.

A decode node asks on its scheduler's thread and tells the prefill node not to send the hits. If it
cannot read them later, it ends the request with an error ("HiCache restore failed").
"""

import time
from collections.abc import Iterator
from typing import Any

import pages
import pytest
import torch
from controller_node import Shape
from decode_node import DecodeNode
from harness.cluster import Cluster
from harness.fixtures import FAST
from harness.waiting import eventually
from radix_node import RadixNode
from sglang.srt.disaggregation.base import KVPoll
from sglang.srt.mem_cache.hicache_storage import PoolHitPolicy, PoolName, PoolTransfer


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Two daemons that this test may harm."""
    with Cluster(2, options=FAST) as made:
        made.start()
        yield made


@pytest.mark.parametrize("kind", ["mha", "mla"])
def test_decode_node_restores_its_probed_prefix(nodes: Any, kind: str) -> None:
    shape = Shape(kind=kind)
    tokens = pages.tokens(f"pd {kind}", 7 * 16)
    asked = tokens + pages.tokens("pd suffix", 24)
    model = f"pd {kind}"
    with RadixNode(nodes[0].socket_path, shape, model=model) as prefill:
        prefill.prefill(tokens)
    with DecodeNode(nodes[1].socket_path, shape, model=model) as decode:
        request = decode.probe(asked)
        assert request.prefix_match.l3_storage_hit_length == len(tokens)
        assert decode.poll(request) == KVPoll.Transferring  # the restore is under way
        assert decode.restore(request) == "ready"
        assert decode.poll(request) == KVPoll.Success
        expected = decode.expected(tokens)
        assert all(map(torch.equal, decode.rows(request), expected))
        decode.release(request)

        again = decode.probe(asked)  # on the device by now, so storage is not asked
        assert again.prefix_match.l1_prefix_len == len(tokens)
        assert again.prefix_match.l3_storage_hit_length == 0
        decode.release(again)


def test_a_probe_without_a_daemon_is_a_quick_miss_and_raises_nothing(cluster: Cluster) -> None:
    tokens = pages.tokens("pd away", 64)
    with RadixNode(cluster[0].socket_path, Shape(), model="away") as prefill:
        prefill.prefill(tokens)
    with DecodeNode(cluster[1].socket_path, Shape(), model="away") as decode:
        cluster[1].kill()
        request = decode.probe(tokens)
        assert request.prefix_match.decode_prefix_len == 0
        decode.release(request)
        cluster[1].start()
        cluster.wait_complete()
        found = []

        def probed() -> int:
            found.append(decode.probe(tokens))
            decode.release(found[-1])
            return int(found[-1].prefix_match.l3_storage_hit_length)

        eventually(lambda: probed() == 64)
        cluster[1].freeze()
        began = time.monotonic()
        assert probed() == 0
        assert time.monotonic() - began < 1  # 50 ms, and slack for other work on this machine
        cluster[1].thaw()


def test_pages_lost_between_probe_and_restore_fail_only_that_request(
    cluster: Cluster,
) -> None:
    """No hold keeps the pages of a killed holder. SGLang sees that the restore failed."""
    tokens = pages.tokens("pd gone", 64)
    with (
        RadixNode(cluster[0].socket_path, Shape(), model="gone") as prefill,
        DecodeNode(cluster[1].socket_path, Shape(), model="gone") as decode,
    ):
        prefill.prefill(tokens)
        request = decode.probe(tokens)
        assert request.prefix_match.l3_storage_hit_length == 64
        cluster[0].kill()
        assert decode.restore(request) == "failed"
        assert decode.poll(request) == KVPoll.Failed
        decode.hooks._clean_hicache_prefetch_resources(request)
        decode.release(request)
        # The dead node's pages are not promised again.
        request = decode.probe(tokens)
        assert request.prefix_match.decode_prefix_len == 0
        decode.release(request)


def test_only_main_thread_probes_keep_side_pool_pages_through_overrun(
    cluster: Cluster, make_promise: Any
) -> None:
    """With v2 the promise covers the side pools' pages, too."""
    assert make_promise(cluster, on_main_thread=False) == 0
    assert make_promise(cluster, on_main_thread=True) == 8


@pytest.fixture
def make_promise() -> Any:
    """Sets 8 pages of KV and of a side pool on one node, asks on the other, and overruns the first
    node's pool. Returns how many pages both pools still have."""
    import threading

    from controller_node import ControllerNode

    def make(cluster: Cluster, *, on_main_thread: bool) -> int:
        shape = Shape(tokens=4096, layers=8, heads=8)
        side_shape = Shape(kind="mla", layers=8, tokens=4096)
        options: dict[str, Any] = {
            "model": f"promise {on_main_thread}",
            "sidecars": [(PoolName.INDEXER, side_shape)],
        }
        with (
            ControllerNode(cluster[0].socket_path, shape, **options) as one,
            ControllerNode(cluster[1].socket_path, shape, **options) as other,
        ):
            hashes = pages.hashes("promise", 8)
            source = pages.alloc(one.pool, 256)
            side = pages.alloc(one.pools[PoolName.INDEXER], 8)
            written = pages.fill(one.pool, source[: 8 * 16], "kv")
            side_written = pages.fill(one.pools[PoolName.INDEXER], side, "side")
            moved = PoolTransfer(name=PoolName.INDEXER, host_indices=side, keys=hashes)
            assert all(one.backend.batch_set_v2([moved])[PoolName.INDEXER])
            assert all(one.backend.batch_set_v1(hashes, source[: 8 * 16]))

            asked = PoolTransfer(name=PoolName.INDEXER, hit_policy=PoolHitPolicy.ALL_PAGES)
            told = []

            def ask() -> None:
                told.append(other.backend.batch_exists_v2(hashes, [asked]).kv_hit_pages)

            if on_main_thread:
                ask()
            else:  # SGLang's query thread, which prefetches at once
                thread = threading.Thread(target=ask)
                thread.start()
                thread.join()
            assert told == [8]

            page_bytes = one.pool.size_per_token * 16
            for i in range(2 * (64 << 20) // (256 * page_bytes) + 1):
                one.backend.batch_set_v1(pages.hashes(f"over {i}", 256), source)
            moved.host_indices = pages.alloc(other.pools[PoolName.INDEXER], 8)
            target = pages.alloc(other.pool, 8)
            ok = other.backend.batch_get_v1(hashes, target)
            side_ok = other.backend.batch_get_v2([moved])[PoolName.INDEXER]
            got = pages.read(other.pool, target)
            side_got = pages.read(other.pools[PoolName.INDEXER], moved.host_indices)
            for i in range(8):
                assert not ok[i] or got[i] == written[i]
                assert not side_ok[i] or side_got[i] == side_written[i]
            return int(min(sum(ok), sum(side_ok)))

    return make
