"""Draws docs/outage.svg: pages by path while all RDMA packets of the reader get lost.

PYTHONPATH=tests tests/rdma/vm --nodes 2 -- .venv/bin/python -m rdma.outage
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from harness.background import Background
from harness.cluster import Daemon
from harness.fixtures import cluster_maker
from harness.pages import Pages, keys_of
from harness.waiting import eventually

from rdma.cables import cut
from rdma.conftest import CALM, START_S
from rdma.rdma_devices import devices

PLOT = Path(__file__).parents[2] / "docs" / "outage.svg"
MIB = 1 << 20
BATCH = 8
STEP_S = 0.5
WELL_S, SICK_S, AFTER_S = 5.0, 15.0, 10.0


@dataclass
class Sample:
    """Totals since the start."""

    at_s: float
    pages: int  # that the worker got
    misses: int
    by_rdma: int  # bytes


class Reader:
    """A worker that reads the same pages over and over."""

    def __init__(self, daemon: Daemon, keys: list[bytes], stack: ExitStack) -> None:
        self._daemon, self._keys = daemon, keys
        self._pages = stack.enter_context(
            Pages(daemon.socket_path, page_bytes=MIB, room_pages=BATCH, timeout_s=4)
        )
        self.got = self.missed = 0
        self.longest_s = 0.0

    def step(self) -> None:
        began = time.monotonic()
        hits = sum(map(bool, self._pages.get(self._keys)))
        self.longest_s = max(self.longest_s, time.monotonic() - began)
        self.got += hits
        self.missed += len(self._keys) - hits

    def by_rdma(self) -> int:
        return sum(rail["bytes"] for rail in self._daemon.status()["transport"]["rails"])


def sampled(reader: Reader, began: float, seconds: float) -> list[Sample]:
    samples = []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(STEP_S)
        at_s = time.monotonic() - began
        samples.append(Sample(at_s, reader.got, reader.missed, reader.by_rdma()))
    return samples


def measured() -> tuple[list[Sample], Reader]:
    with ExitStack() as stack:
        make = cluster_maker(stack, CALM, START_S)
        each = [{"device_names": device} for device in devices()[:2]]
        cluster = make(2, each=each, protocol="auto")
        keys = keys_of("pages", BATCH)
        writing = Pages(cluster[0].socket_path, page_bytes=MIB, room_pages=BATCH, timeout_s=30)
        assert all(stack.enter_context(writing).set(keys))
        reader = Reader(cluster[1], keys, stack)
        with Background(reader.step):
            eventually(lambda: reader.by_rdma() > BATCH * MIB, 60)
        reader.longest_s, reader.missed = 0.0, 0
        began = time.monotonic()
        with Background(reader.step):
            samples = sampled(reader, began, WELL_S)
            with cut(devices()[1]):
                samples += sampled(reader, began, SICK_S)
            samples += sampled(reader, began, AFTER_S)
    return samples, reader


def draw(samples: list[Sample]) -> None:
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.fonttype"] = "none"  # text stays text
    from matplotlib import pyplot as plt

    made, axes = plt.subplots(figsize=(9, 3.2))
    steps = list(pairwise(samples))
    at = [after.at_s for _, after in steps]
    rdma = [(b.by_rdma - a.by_rdma) / MIB / (b.at_s - a.at_s) for a, b in steps]
    every = [(b.pages - a.pages) / (b.at_s - a.at_s) for a, b in steps]
    misses = [(b.misses - a.misses) / (b.at_s - a.at_s) for a, b in steps]
    axes.axvspan(WELL_S, WELL_S + SICK_S, color="0.92", label="all RDMA packets get lost")
    axes.plot(at, rdma, label="over RDMA")
    axes.plot(at, [max(a - r, 0.0) for a, r in zip(every, rdma, strict=True)], label="over TCP")
    axes.plot(at, misses, label="misses")
    axes.set_xlabel("seconds")
    axes.set_ylabel("pages of 1 MiB a second")
    axes.legend(frameon=False)
    made.tight_layout()
    made.savefig(PLOT, metadata={"Date": None})


def main() -> None:
    samples, reader = measured()
    print(f"{reader.got} pages, {reader.missed} misses, the longest get {reader.longest_s:.2f} s")
    draw(samples)


if __name__ == "__main__":
    main()
