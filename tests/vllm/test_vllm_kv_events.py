"""vLLM's own decoder as the subscriber of the daemon's events, and vLLM's hashes in them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from harness.cluster import Cluster
from harness.kv_subscriber import Subscriber
from harness.waiting import eventually
from offload_node import keys_of
from vllm.distributed.kv_events import KVEventBatch
from vllm.v1.core import kv_cache_utils
from vllm.v1.kv_offload.base import OffloadKey, get_offload_block_hash

from peercache_bench.process import free_port


@pytest.fixture
def telling() -> Any:
    with Cluster(2) as cluster:
        for daemon in cluster.daemons:
            daemon.options |= {"pool-size": "64MiB", "kv-events-port": free_port(daemon.host)}
        cluster.start()
        yield cluster


def told_hashes(keys: list[OffloadKey]) -> set[bytes | int]:
    """As in vLLM's own events of these chunks (offloading/events.py)."""
    return {kv_cache_utils.maybe_convert_block_hash(get_offload_block_hash(key)) for key in keys}


@pytest.mark.parametrize("integers", ["0", "1"])
def test_vllms_decoder_reads_the_hashes_that_vllm_gives(
    make_node: Any, telling: Cluster, integers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES", integers)
    decode = msgspec.msgpack.Decoder(KVEventBatch).decode
    keys = keys_of(f"events {integers}", 8)
    port = int(str(telling[0].options["kv-events-port"]))
    with Subscriber(telling[0].host, port, decode=decode) as router:
        assert router.take(10_000), "no batch after the subscription"
        node = make_node(telling[1].socket_path)
        node.prefill(keys)

        def heard() -> set[bytes | int]:
            router.take()
            return {each for hashes in router.known().values() for each in hashes}

        eventually(lambda: heard() == told_hashes(keys), what=lambda: f"it has {router.known()}")
        assert set(router.block_sizes.values()) == {16}
        assert {place[0] for place in router.known()} == {"b"}
