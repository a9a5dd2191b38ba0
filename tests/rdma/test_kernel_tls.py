"""This machine's kernel has TLS, so it encrypts the pages that travel over sealed TCP.

Needs no RDMA device, but most hosts' kernels have no TLS, and a container cannot load it.
"""

import subprocess
from functools import partial
from pathlib import Path

import pytest
from harness.certificates import Certificates
from harness.cluster import Daemon
from harness.fixtures import MakeCluster
from harness.pages import keys_of
from harness.waiting import eventually

TRANSFER_TEST = Path(__file__).parents[2] / "build" / "native" / "transfer_test"


def test_pages_that_the_kernel_encrypts_arrive_whole(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    certificates = Certificates(tmp_path / "certificates")
    nodes = make_cluster(
        2, protocol="tcp", each=[certificates.options(name) for name in ("a", "b")]
    )
    for holder, reader in (nodes.daemons, nodes.daemons[::-1]):
        keys = keys_of(f"of {holder.node_id}", 32)
        assert all(holder.attach().set(keys))
        assert reader.attach().has(keys)
        # The reader has the last page a moment before the holder counts it.
        eventually(partial(_has_served, holder, len(keys)))
        served = holder.status()["tcp_server"]
        assert served["kernel_sealed"] > 0
        assert (served["bad_frames"], served["stalls"]) == (0, 0)


def _has_served(holder: Daemon, pages: int) -> bool:
    return int(holder.status()["tcp_server"]["pages"]) >= pages


@pytest.mark.slow
def test_all_tests_of_sealed_reads_pass_with_the_kernel() -> None:
    done = subprocess.run(
        [TRANSFER_TEST, "--gtest_brief=1", "--gtest_filter=Sealed*:*TcpRead*:TcpHostile*"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr
