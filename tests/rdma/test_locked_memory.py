"""A daemon that may not lock enough memory says so, and names the remedy."""

from collections.abc import Sequence

import pytest
from harness.fixtures import MakeCluster
from harness.pages import keys_of
from harness.raw_worker import LIMIT, RawWorker

from rdma.rdma_devices import devices

MIB = 1 << 20
POOL_BYTES = 32 * MIB

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def may_lock(limit_bytes: int) -> Sequence[str]:
    """A launcher that drops the capability to lock any amount, and sets this limit."""
    return ["setpriv", "--bounding-set=-ipc_lock", "prlimit", f"--memlock={limit_bytes}"]


def test_protocol_rdma_refuses_to_start_and_names_the_remedy(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(1, start=False, pool_size=POOL_BYTES, device_names=devices()[0])
    cluster[0].launcher = list(may_lock(MIB))
    cluster[0].start()
    assert cluster[0].wait_exit(60) != 0
    log = cluster[0].log_text()
    assert "RLIMIT_MEMLOCK is 1 MiB" in log
    assert "LimitMEMLOCK=infinity" in log
    assert "Traceback" not in log


def test_protocol_auto_takes_tcp_and_says_why(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(
        2, start=False, protocol="auto", pool_size=POOL_BYTES, device_names=devices()[0]
    )
    cluster[0].launcher = list(may_lock(MIB))
    cluster.start(120)
    limited, other = cluster.daemons
    now = limited.status()
    assert now["transport"]["protocol"] == "tcp"
    assert "RLIMIT_MEMLOCK is 1 MiB" in now["transport"]["why"]
    assert any("RLIMIT_MEMLOCK" in one["sentence"] for one in now["health"])
    assert other.status()["transport"]["protocol"] == "rdma"
    keys = keys_of("both ways", 8)
    for holder, reader in ((limited, other), (other, limited)):
        own = [key + holder.node_id.encode() for key in keys]
        assert all(holder.attach().set(own))
        assert reader.attach(timeout_s=20).has(own)


def test_a_region_beyond_the_limit_is_refused_and_smaller_ones_work(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster(1, start=False, pool_size=POOL_BYTES, device_names=devices()[0])
    cluster[0].launcher = list(may_lock(POOL_BYTES + 8 * MIB))
    cluster.start(120)
    with RawWorker(cluster[0].socket_path) as worker:
        refused = worker.register(worker.memfd(16 * MIB), 16 * MIB)
        assert refused.error == LIMIT
        assert "RLIMIT_MEMLOCK is 40 MiB" in refused.text
        assert "LimitMEMLOCK=infinity" in refused.text
        assert worker.register(worker.memfd(4 * MIB), 4 * MIB).error == 0
    # The first worker's memory is free again.
    pages = cluster[0].attach(page_bytes=MIB, room_pages=6)
    assert all(pages.set(keys_of("small", 6)))
