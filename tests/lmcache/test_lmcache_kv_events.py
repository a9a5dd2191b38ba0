"""LMCache's own events of chunks beside the daemon's: a chunk has one hash in both."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from harness.cluster import Cluster
from harness.kv_subscriber import Subscriber
from harness.waiting import eventually
from lmcache.v1.distributed.api import ObjectKey
from lmcache.v1.mp_observability.event import Event, EventType
from lmcache.v1.mp_observability.event_bus import EventBusConfig, init_event_bus
from storage_node import CHUNK_BYTES, MODEL, keys_of

from peercache_bench.process import free_port
from peercache_client.lmcache.event_hashes import event_hash
from peercache_client.page_names import UNTOLD

CHUNKS = 8
OTHERS = [
    {"kv_rank": ObjectKey.ComputeKVRank(2, 1, 2, 1)},
    {"object_group_id": 1},
]


@pytest.fixture
def telling() -> Iterator[Cluster]:
    with Cluster(1) as cluster:
        cluster[0].options |= {"pool-size": "64MiB", "kv-events-port": free_port(cluster[0].host)}
        cluster.start()
        yield cluster


@pytest.fixture
def bus() -> Iterator[Any]:
    """LMCache's, which its L1 tells of chunks."""
    bus = init_event_bus(EventBusConfig())
    bus.start()
    yield bus
    bus.stop()
    init_event_bus(EventBusConfig(enabled=False))


@pytest.mark.parametrize("shared_memory", [True, False], ids=["in place", "copied"])
@pytest.mark.parametrize("integers", ["0", "1"])
def test_a_chunk_has_the_hash_of_lmcaches_own_events(
    make_node: Any,
    telling: Cluster,
    bus: Any,
    integers: str,
    shared_memory: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own_events = pytest.importorskip("lmcache.v1.multiprocess.modules.kv_events")
    monkeypatch.setenv("VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES", integers)
    own = own_events.KVEventModule(SimpleNamespace(event_bus=bus))
    keys = keys_of("events", CHUNKS)
    others = [key for changes in OTHERS for key in keys_of("events", CHUNKS, **changes)]
    port = int(str(telling[0].options["kv-events-port"]))
    with Subscriber(telling[0].host, port) as router:
        node = make_node(
            telling[0].socket_path, shared_memory=shared_memory, l1_bytes=64 * CHUNK_BYTES
        )
        hashes = [key.chunk_hash for key in keys]
        tokens: dict[str, list[Any]] = {
            "chunk_hashes": hashes,
            "token_chunks": [[0] * 16] * CHUNKS,
            "parent_hashes": [None, *hashes[:-1]],
        }
        bus.publish(Event(event_type=EventType.MP_TOKENS, metadata=tokens))
        node.prefill([*keys, *others])

        def own_hashes() -> set[bytes]:
            records = own.read_kv_events(MODEL, 0, 1024).events
            return {each for record in records for each in record.block_hashes}

        eventually(lambda: own_hashes() == set(hashes), what="LMCache's own events")
        expected = {
            # Converted as by LMCache's connector in vLLM.
            ObjectKey.Bytes2IntHash(each) if integers == "1" else each
            for each in own_hashes()
        }

        def heard() -> set[bytes | int]:
            router.take()
            return {each for told in router.known().values() for each in told}

        eventually(lambda: heard() == expected, what=lambda: f"it has {router.known()}")
    own.close()


@pytest.mark.parametrize("integers", [False, True])
def test_one_object_of_a_chunk_stands_for_all(integers: bool) -> None:
    assert event_hash(keys_of("one", 1)[0], integers) is not UNTOLD
    for changes in OTHERS:
        assert event_hash(keys_of("one", 1, **changes)[0], integers) is UNTOLD


@pytest.mark.parametrize("chunk_hash", [b"", bytes(33)])
def test_a_hash_that_no_event_can_have_does_not_stop_a_store(chunk_hash: bytes) -> None:
    assert event_hash(ObjectKey(chunk_hash, MODEL, kv_rank=1 << 24), False) is None


def test_a_wrong_setting_of_hashes_stops_the_start(
    make_node: Any, stand_in: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES", "yes")
    with pytest.raises(Exception, match="USE_INT_BLOCK_HASHES is 'yes': 0 or 1, as at vLLM"):
        make_node(stand_in.path)
