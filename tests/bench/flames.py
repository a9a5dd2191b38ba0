"""Where the processor time of lookups and sets goes: flame graphs of all daemons of a cluster.

    make bench-flames ARGS=NODES               default: 8

Needs perf, as root or with kernel.perf_event_paranoid <= 1, and inferno (`cargo install inferno`).
The graphs are build/flames/exists.svg and set.svg, with the time of each daemon's threads by name.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from harness.background import Background
from harness.cluster import Cluster
from harness.directory import wait_settled

from bench.cluster import KEYS, PAGE_BYTES, PAGES, SMALL_BYTES, START_S, Workers

FOLDER = Path(__file__).parents[2] / "build" / "flames"
SECONDS = 10.0
SAMPLES_A_SECOND = 499


def draw(name: str, pids: list[int], work: Callable[[], object]) -> Path:
    data, picture = FOLDER / f"{name}.perf", FOLDER / f"{name}.svg"
    recording = [
        *("perf", "record", "-q", "-F", str(SAMPLES_A_SECOND), "--call-graph", "dwarf,16384"),
        *("-p", ",".join(map(str, pids)), "-o", str(data), "--", "sleep", str(SECONDS)),
    ]
    began = time.perf_counter()
    with Background(work) as working:
        subprocess.run(recording, check=True)
    each_us = (time.perf_counter() - began) / working.rounds * 1e6
    with picture.open("wb") as svg:
        script = subprocess.Popen(
            ["perf", "script", "-i", str(data)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        folded = subprocess.Popen(
            ["inferno-collapse-perf"], stdin=script.stdout, stdout=subprocess.PIPE
        )
        title = f"{name}, {len(pids)} nodes, {each_us:.0f} us each"
        subprocess.run(
            ["inferno-flamegraph", "--title", title], stdin=folded.stdout, stdout=svg, check=True
        )
        assert script.wait() == folded.wait() == 0
    data.unlink()
    return picture


def main(nodes: int) -> None:
    for needed in ("perf", "inferno-flamegraph"):
        if shutil.which(needed) is None:
            sys.exit(f"{needed} is not installed: see the first lines of {__file__}")
    FOLDER.mkdir(parents=True, exist_ok=True)
    with Cluster(nodes, options={"pool-size": "96MiB"}, patience=START_S / 20) as cluster:
        cluster.start(START_S)
        wait_settled(cluster.daemons, START_S)
        pids = [daemon.pid for daemon in cluster.daemons]
        workers = Workers(cluster)
        known = [workers.set(KEYS, SMALL_BYTES) for _ in range(60)]
        turn = iter(known * 1_000_000)
        print(draw("exists", pids, lambda: workers.exists(next(turn))))
        print(draw("set", pids, lambda: workers.set(PAGES, PAGE_BYTES)))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 8)
