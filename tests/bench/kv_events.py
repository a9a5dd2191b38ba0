"""`make bench-kv-events`: events of pages at full speed, with routers that are slow and cut off.

One of two nodes sets small pages until its pool evicts, and the other one tells of it. Three
routers hear: one reads all, one reads nothing until the end, one is cut off again and again. At the
end a fourth one comes, as after a kill. All must know the same pages, as many as the node has, and
`locate` must agree with a sample of them.

With vLLM's Python (.venv-vllm/bin/python tests/bench/kv_events.py) the routers decode with vLLM's
own classes.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
from harness.cluster import Cluster, Daemon
from harness.kv_subscriber import Subscriber

from peercache_bench.process import free_port
from peercache_client import Client
from peercached.admin.client import AdminClient

BATCH = 4096
PAGE = 64
SAMPLE = 500


def vllms_decoder() -> Any:
    """None without vLLM."""
    try:
        from vllm.distributed.kv_events import KVEventBatch
    except ImportError:
        return None
    return msgspec.msgpack.Decoder(KVEventBatch).decode


def hash_of(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()


def keys_at(turn: int) -> list[str]:
    return [f"{turn}/{number}" for number in range(BATCH)]


def processor_s(daemon: Daemon) -> float:
    fields = Path(f"/proc/{daemon.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mib(daemon: Daemon) -> float:
    status = Path(f"/proc/{daemon.pid}/status").read_text()
    return int(status.partition("RssAnon:")[2].split()[0]) / 1024


class Setter(threading.Thread):
    def __init__(self, daemon: Daemon) -> None:
        super().__init__(daemon=True)
        self._client = Client(str(daemon.socket_path), "bench", timeout_s=30)
        self.turn = 0
        self.ends = False

    def run(self) -> None:
        region = self._client.alloc(PAGE * BATCH)
        offsets = [PAGE * number for number in range(BATCH)]
        while not self.ends:
            keys = keys_at(self.turn)
            hashes = [hash_of(key) for key in keys]
            self._client.batch_set(keys, region, offsets, PAGE, hashes=hashes, block_tokens=16)
            self.turn += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--pool", default="64MiB")
    arguments = parser.parse_args()
    with Cluster(2) as cluster:
        for daemon in cluster.daemons:
            daemon.options |= {
                "pool-size": arguments.pool,
                "directory-capacity": 2_000_000,
                "kv-events-port": free_port(daemon.host),
                "replica-share": 0,
                "spill-bytes-per-s": 0,
            }
        cluster.start()
        measure(cluster[0], cluster[1], arguments.events)


def measure(teller: Daemon, holder: Daemon, events: int) -> None:
    port = int(str(teller.options["kv-events-port"]))
    decode = vllms_decoder()
    reader, slow, cut = (
        Subscriber(teller.host, port, behind=size, decode=decode) for size in (10**6, 1, 10**6)
    )
    for router in (reader, slow, cut):
        router.take(2000)
    memory_mib = resident_mib(teller)
    began, used = time.monotonic(), [processor_s(teller), processor_s(holder)]
    setter = Setter(holder)
    setter.start()
    lags: list[float] = []
    turn_at = began
    is_cut = False
    while reader.events < events:
        reader.take(50)
        lags += [time.time() - at for at in reader.times[-1:]]
        reader.times.clear()
        if time.monotonic() - turn_at > 1.0:
            turn_at = time.monotonic()
            (cut.connect if is_cut else cut.cut)()
            is_cut = not is_cut
        if not is_cut:
            cut.take(0)
    took_s = time.monotonic() - began
    used = [processor_s(daemon) - s for daemon, s in zip((teller, holder), used, strict=True)]
    setter.ends = True
    setter.join()
    if is_cut:
        cut.connect()
    late = Subscriber(teller.host, port, decode=decode)
    late.begin()
    settle(teller, [reader, slow, cut, late])
    check(teller, reader, setter.turn)
    assert len(reader.held("b", "bench")) == holder.status()["pool"]["keys"]
    lags.sort()
    told = teller.status()["kv_events"]
    print(f"decoder          {'vLLM' if decode else 'the harness'}")
    print(f"events/s         {reader.events / took_s:12,.0f}")
    print(f"events           {reader.events:12,}  in {reader.batches:,} batches")
    print(f"bytes/event      {reader.bytes / reader.events:12.1f}")
    print(
        f"lag p50, p99     {lags[len(lags) // 2] * 1e3:9.1f} ms {lags[-len(lags) // 100] * 1e3:.1f}"
    )
    print(f"processor        teller {used[0]:.1f} s, holder {used[1]:.1f} s, of {took_s:.1f} s")
    memory = (resident_mib(teller) - memory_mib) * (1 << 20) / max(told["pages"], 1)
    print(f"memory           {memory:.0f} bytes per page of {told['pages']:,}, records included")
    print(f"repairs          slow {slow.repairs}, cut {cut.repairs}; snapshots {told['snapshots']}")


def settle(teller: Daemon, routers: list[Subscriber]) -> None:
    """Until all know what is told."""
    until = time.monotonic() + 60
    while True:
        for router in routers:
            router.take(100)
        told = teller.status()["kv_events"]["told"]
        counts = [sum(map(len, router.known().values())) for router in routers]
        if counts == [told] * len(routers) and all(
            router.known() == routers[0].known() for router in routers
        ):
            return
        assert time.monotonic() < until, f"{told} pages are told, and the routers know {counts}"


def check(teller: Daemon, router: Subscriber, turns: int) -> None:
    held = router.held("b", "bench")
    sample = random.sample([key for turn in range(turns) for key in keys_at(turn)], SAMPLE)
    with AdminClient(str(teller.admin_path)) as admin:
        for key in sample:
            holders = [one.node_id for one in admin.locate("bench", key.encode()).holders]
            assert holders == (["b"] if hash_of(key) in held else []), key
    print(f"the picture is that of locate, in {SAMPLE} keys of {turns * BATCH:,}")


if __name__ == "__main__":
    main()
