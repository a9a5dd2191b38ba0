"""perftest runs here; its figure is what ours is compared with."""

import pytest
from perftest import read_bandwidth
from rdma_devices import devices


@pytest.mark.parametrize("queue_pairs", [1, 4])
def test_the_bandwidth_of_reads_is_measured(
    queue_pairs: int, capsys: pytest.CaptureFixture[str]
) -> None:
    for size_kib in (64, 128, 1024):
        reads = (32 << 10) // (size_kib * queue_pairs)
        gigabytes = read_bandwidth(*devices()[:2], size_kib << 10, queue_pairs, reads)
        assert gigabytes > 0
        with capsys.disabled():
            print(f"\nib_read_bw {size_kib} KiB, {queue_pairs} QPs: {gigabytes:.3f} GB/s", end="")
