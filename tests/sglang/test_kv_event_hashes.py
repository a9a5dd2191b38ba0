"""SGLang's decoder and hashes for the daemon's events."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
from harness.cluster import Cluster
from harness.kv_subscriber import Subscriber
from harness.waiting import eventually
from sglang.srt.disaggregation.kv_events import KVEventBatch
from sglang.srt.mem_cache.utils import hash_str_to_int64

from peercache_bench.process import free_port
from peercache_client import Client
from peercache_client.block_hashes import event_hash, names
from peercache_client.identity import Topology

HASHES = [hashlib.sha256(bytes([number])).hexdigest() for number in range(64)]
FIRST = Topology(0, 2, 0, 1, 0, 1, 0, 1, False, 0)


def test_the_hashes_are_those_of_sglangs_own_events() -> None:
    assert [event_hash(each) for each in HASHES] == [hash_str_to_int64(each) for each in HASHES]


def test_sglangs_decoder_reads_the_pages_of_the_first_rank() -> None:
    decode = msgspec.msgpack.Decoder(KVEventBatch).decode
    with Cluster(1) as cluster:
        port = free_port(cluster[0].host)
        cluster[0].options |= {"pool-size": "64MiB", "kv-events-port": port}
        cluster.start()
        with (
            Subscriber(cluster[0].host, port, decode=decode) as router,
            Client(str(cluster[0].socket_path), "test") as client,
        ):
            assert router.take(10_000), "no batch after the subscription"
            for rank, topology in enumerate((FIRST, FIRST._replace(tp_rank=1))):
                wanted = [("kv", HASHES, 2, 32), ("mamba", HASHES[:3], 1, 32)]
                keys = [f"{rank}/{number}" for number in range(2 * len(HASHES) + 3)]
                options: dict[str, Any] = names(topology, wanted)
                assert all(client.batch_set_buffers(keys, [b"x" * 64] * len(keys), **options))
            expected = {hash_str_to_int64(each) for each in HASHES}
            eventually(lambda: router.take() >= 0 and router.held("a") == expected)
            assert set(router.block_sizes.values()) == {32}
