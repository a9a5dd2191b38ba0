"""Two daemons from start to end: pages both ways, a kill and a restart, a clean stop.

The timeouts suit sanitized daemons under emulation, which take minutes to start: `make
asan-rdma-daemons`. In that case it also proves that the sanitizer works.
"""

import subprocess
import sys
from pathlib import Path

import pytest
from harness.clock import PACE
from harness.cluster import Cluster, Daemon
from harness.fixtures import MakeCluster
from harness.pages import Pages, keys_of
from harness.waiting import eventually

from peercached import _native
from rdma.rdma_devices import devices

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400 * PACE)]

MIB = 1 << 20
PAGES = 200
PAGE_BYTES = 64 << 10
SIZES = [1 + number * 7919 % PAGE_BYTES for number in range(PAGES)]
LONG_S = 60.0
SANITIZED = _native.build_info()["sanitize"] == "address"

USE_AFTER_FREE = """
import ctypes
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
memory = libc.malloc(16)
libc.free(ctypes.c_void_p(memory))
libc.memset(ctypes.c_void_p(memory), 0, 1)
"""


def patient_pair(make_cluster: MakeCluster) -> Cluster:
    return make_cluster(
        2,
        each=[
            {"device_names": devices()[0], "verify": "checksum"},
            {"device_names": devices()[1], "verify": "header"},
        ],
        heartbeat_interval_s=1.0,
        member_ttl_s=12.0,
        rpc_timeout_ms=60_000,
        publish_timeout_ms=60_000,
    )


def read_over_rails(daemon: Daemon) -> int:
    return sum(rail["bytes"] for rail in daemon.status()["transport"]["rails"])


def pages_travel(holder: Daemon, to: Pages, reader: Daemon, by: Pages, name: str) -> list[bytes]:
    """Sets pages at `holder`, then reads and checks them at `reader` by READs. Returns keys."""
    keys = keys_of(name, PAGES)
    assert all(to.set(keys, SIZES))
    eventually(lambda: by.client.batch_exists(keys) == PAGES, LONG_S, "all are found")
    before = read_over_rails(reader)
    assert by.has(keys, SIZES)
    assert read_over_rails(reader) - before == sum(SIZES)
    return keys


def is_sanitized(daemon: Daemon) -> bool:
    return "libasan" in Path(f"/proc/{daemon.pid}/maps").read_text()


def test_pages_both_ways_a_death_a_return_and_a_clean_stop(make_cluster: MakeCluster) -> None:
    cluster = patient_pair(make_cluster)
    first, second = cluster.daemons
    assert is_sanitized(first) == is_sanitized(second) == SANITIZED
    shape = {"page_bytes": PAGE_BYTES, "room_pages": PAGES, "timeout_s": LONG_S}
    here, there = first.attach(**shape), second.attach(**shape)
    pages_travel(first, here, second, there, "there")
    lost = pages_travel(second, there, first, here, "and back")

    second.kill()
    assert not any(here.get(lost, SIZES))
    second.start()
    cluster.wait_complete(LONG_S)
    eventually(there.client.ping, LONG_S, "its worker is back")
    pages_travel(second, there, first, here, "after its return")
    pages_travel(first, here, second, there, "as before")

    for daemon in cluster.daemons:
        assert daemon.stop(LONG_S) == 0
        for report in ("AddressSanitizer", "runtime error:", "Traceback"):
            assert report not in daemon.log_text(), daemon.log_tail()


@pytest.mark.skipif(not SANITIZED, reason="of builds with the address sanitizer")
def test_the_sanitizer_is_awake() -> None:
    broken = subprocess.run(
        [sys.executable, "-c", USE_AFTER_FREE], capture_output=True, text=True, check=False
    )
    assert broken.returncode != 0
    assert "AddressSanitizer: heap-use-after-free" in broken.stderr
