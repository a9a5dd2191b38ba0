"""Runs perftest's ib_read_bw between two RDMA ports of this machine, for the limit of the link."""

import contextlib
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from peercache_bench.daemons import wait_until
from peercache_bench.process import free_port

# perftest's default depth of 128 puts up to 512 MB in flight. soft-RoCE then loses packets.
_IN_FLIGHT_BYTES = 8 << 20
_DEPTH_MAX = 128
_ATTEMPTS = 10
_START_S = 20.0
_RUN_S = 100.0

_LISTEN = "0A"  # state "listen" in /proc/net/tcp


@dataclass(frozen=True)
class Port:
    """One end: a device, its port, and the index of the port's GID."""

    device: str
    gid_index: int
    number: int = 1


def available() -> bool:
    return shutil.which("ib_read_bw") is not None


def read_bandwidth(
    pairs: Sequence[tuple[Port, Port]],
    size_bytes: int,
    queue_pairs: int = 1,
    reads: int = 500,
    *,
    sleeping: bool = False,
) -> float:
    """GB/s (1e9 bytes) of `reads` READs of `size_bytes` per queue pair, summed over all pairs of
    (source, reader) running at the same time. `sleeping`: use completion events instead of polling.

    perftest calibrates its clock first. On a busy machine that sometimes fails, and its report is
    all zeros; then we try again. If perftest fails, RuntimeError contains its output.
    """
    depth = min(_DEPTH_MAX, max(1, _IN_FLIGHT_BYTES // (size_bytes * queue_pairs)))
    what = [*("-s", str(size_bytes)), *("-q", str(queue_pairs)), *("-n", str(reads))]
    what += ["-t", str(depth), *(["-e"] if sleeping else [])]
    for _ in range(_ATTEMPTS):
        rates = _measure(pairs, size_bytes, what)
        if all(rates):
            return sum(rates)
    raise RuntimeError(f"ib_read_bw could not time itself, {_ATTEMPTS} times in a row")


def _measure(
    pairs: Sequence[tuple[Port, Port]], size_bytes: int, what: Sequence[str]
) -> list[float]:
    with contextlib.ExitStack() as stack:
        readers = []
        for source, reader in pairs:
            port = free_port("127.0.0.1")
            serving = stack.enter_context(_running(_command(source, port, what)))
            wait_until(partial(_listens_or_ended, port, serving), _START_S, "ib_read_bw to listen")
            readers.append([*_command(reader, port, what), "127.0.0.1"])
        running = [stack.enter_context(_running(command)) for command in readers]
        rates = []
        for process in running:
            report = process.communicate(timeout=_RUN_S)[0]
            if process.returncode != 0:
                raise RuntimeError(f"ib_read_bw failed:\n{report}")
            rates.append(_average_gbits(report, size_bytes) / 8)
        return rates


def _command(end: Port, control_port: int, what: Sequence[str]) -> list[str]:
    place = [*("-d", end.device), *("-i", str(end.number)), *("-x", str(end.gid_index))]
    return ["ib_read_bw", *place, "-F", "-p", str(control_port), "--report_gbits", *what]


@contextlib.contextmanager
def _running(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _average_gbits(report: str, size_bytes: int) -> float:
    """Parses the report's row: bytes, reads, peak, average, messages per second."""
    for line in report.splitlines():
        words = line.split()
        if words[:1] == [str(size_bytes)]:
            return float(words[3])
    raise RuntimeError(f"ib_read_bw's report has no row for {size_bytes} bytes:\n{report}")


def _listens_or_ended(port: int, process: subprocess.Popen[str]) -> bool:
    return _listens(port) or process.poll() is not None


def _listens(port: int) -> bool:
    """Checks without connecting, because the server accepts only one connection."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            words = line.split()
            if words[1].endswith(f":{port:04X}") and words[3] == _LISTEN:
                return True
    return False
