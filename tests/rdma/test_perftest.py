"""perftest runs here; its speed is the reference for ours."""

import pytest

from peercache_bench.perftest import Port, read_bandwidth
from rdma.rdma_devices import devices, roce_v2_ipv4_gid


@pytest.mark.parametrize("queue_pairs", [1, pytest.param(4, marks=pytest.mark.slow)])
def test_the_bandwidth_of_reads_is_measured(
    queue_pairs: int, capsys: pytest.CaptureFixture[str]
) -> None:
    source, reader = (Port(name, roce_v2_ipv4_gid(name).index) for name in devices()[:2])
    for size_kib in (64, 128, 1024):
        reads = (32 << 10) // (size_kib * queue_pairs)
        gigabytes = read_bandwidth([(source, reader)], size_kib << 10, queue_pairs, reads)
        assert gigabytes > 0
        with capsys.disabled():
            print(f"\nib_read_bw {size_kib} KiB, {queue_pairs} QPs: {gigabytes:.3f} GB/s", end="")
