"""Device memory as a dma-buf: a daemon takes it if its RDMA device can, else it gives a reason.

The kernel's udmabuf makes dma-bufs out of ordinary memory. Soft-RoCE cannot register them, so
these tests cover only the refusal.
"""

import fcntl
import os
import struct
from pathlib import Path

import pytest
from harness.fixtures import MakeCluster
from harness.raw_worker import LIMIT, RawWorker

MIB = 1 << 20
UDMABUF = Path("/dev/udmabuf")
UDMABUF_CREATE = 0x40187542  # linux/udmabuf.h


def dma_buf(size_bytes: int) -> int:
    memory = os.memfd_create("dma-buf", os.MFD_ALLOW_SEALING)
    os.ftruncate(memory, size_bytes)
    fcntl.fcntl(memory, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    wish = bytearray(struct.pack("<IIQQ", memory, 1, 0, size_bytes))
    with UDMABUF.open("rb") as device:
        # With a bytes object, ioctl() would return bytes instead of the new descriptor.
        made: int = fcntl.ioctl(device, UDMABUF_CREATE, wish)
    os.close(memory)
    return made


@pytest.mark.skipif(not UDMABUF.exists(), reason="this kernel has no udmabuf; that of uml has")
def test_a_dma_buf_is_refused_with_the_reason(make_cluster: MakeCluster) -> None:
    rdma, tcp = make_cluster(
        2, pool_size="16MiB", each=[{"device_names": "rxe0"}, {"protocol": "tcp"}]
    ).daemons
    for daemon, reason in ((rdma, "registering a dma-buf of 4 MiB with rxe0:1"), (tcp, "RDMA")):
        with RawWorker(daemon.socket_path) as worker:
            refused = worker.register(dma_buf(4 * MIB), 4 * MIB)
            assert refused.error == LIMIT
            assert reason in refused.text
            # The attachment survives and takes other memory.
            assert worker.register(worker.memfd(4 * MIB), 4 * MIB).error == 0
