"""perftest's ib_read_bw between two devices: what the wire itself can do."""

import socket
import subprocess
from pathlib import Path

from harness.waiting import eventually
from rdma_devices import roce_v2_ipv4_gid

# perftest's own depth of 128 would ask soft-RoCE for 512 MB at once; it loses packets then.
_IN_FLIGHT_BYTES = 8 << 20
_DEPTH_MAX = 128
_ATTEMPTS = 10

_LISTEN = "0A"  # of /proc/net/tcp


def read_bandwidth(
    source: str, reader: str, size_bytes: int, queue_pairs: int = 1, reads: int = 500
) -> float:
    """GB/s (1e9 bytes) of `reads` READs of `size_bytes` per queue pair.

    perftest times its own time stamps first. On a busy machine that fails now and then, and all of
    its report is 0: then once more.
    """
    for _ in range(_ATTEMPTS):
        if measured := _measure(source, reader, size_bytes, queue_pairs, reads):
            return measured
    raise RuntimeError(f"ib_read_bw could not time itself, {_ATTEMPTS} times in a row")


def _measure(source: str, reader: str, size_bytes: int, queue_pairs: int, reads: int) -> float:
    port = _free_port()
    depth = min(_DEPTH_MAX, max(1, _IN_FLIGHT_BYTES // (size_bytes * queue_pairs)))
    what = [*("-s", str(size_bytes)), *("-q", str(queue_pairs)), *("-n", str(reads))]
    what += ["-t", str(depth)]
    common = ["-F", "-p", str(port), "--report_gbits", *what]

    def command(device: str) -> list[str]:
        gid = roce_v2_ipv4_gid(device)
        return ["ib_read_bw", "-d", device, "-x", str(gid.index), *common]

    serving = subprocess.Popen(
        command(source), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        eventually(lambda: _listens(port) or serving.poll() is not None, what="ib_read_bw listens")
        done = subprocess.run(
            [*command(reader), "127.0.0.1"],
            capture_output=True,
            text=True,
            check=False,
            timeout=100,
        )
        if done.returncode != 0:
            serving.kill()
            served = serving.communicate()[0]
            raise RuntimeError(f"ib_read_bw failed:\n{done.stdout}{done.stderr}{served}")
        return _average_gbits(done.stdout, size_bytes) / 8
    finally:
        serving.kill()
        serving.communicate()


def _average_gbits(report: str, size_bytes: int) -> float:
    """The row of the report: bytes, reads, peak, average, messages a second."""
    for line in report.splitlines():
        words = line.split()
        if words[:1] == [str(size_bytes)]:
            return float(words[3])
    raise RuntimeError(f"ib_read_bw's report has no row for {size_bytes} bytes:\n{report}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _listens(port: int) -> bool:
    """Without connecting: it takes one connection only."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            words = line.split()
            if words[1].endswith(f":{port:04X}") and words[3] == _LISTEN:
                return True
    return False
