"""This build beside another one, in turns: what a change gains, and what it costs.

    make bench-turns ARGS="CHECKOUT [ROUNDS [NODES]]"      default: 12 rounds, 2 nodes

CHECKOUT is another working tree, such as one of `git worktree add`, after `make setup` there. Each
build has a process with its daemons and does the same work: sets at one node, `exists` and gets of
the same keys at another. The builds take turns, cell by cell, because the speed of a machine
changes from minute to minute. The figures are medians of all calls, and of the rounds for processor
time (daemons and worker, of `exists` and get).
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.cluster import Cluster

from bench.cluster import Usage
from peercache_client import Client

HERE = Path(__file__).parents[2]
KIB = 1 << 10
BUFFER_BYTES = 64 << 20
MANY = 1 << 20
# KiB of a page, pages of a batch, calls in a turn: at most as many as the buffer has room for
CELLS = [
    *((16, 32, MANY), (16, 128, MANY), (128, 32, MANY), (128, 128, MANY)),
    *((1024, 32, MANY), (1024, 64, MANY), (4096, 16, MANY), (4, 128, 32), (128, 1, 200)),
]
DEFAULTS = (12, 2)  # rounds and nodes
# A build slower than this by its median is marked.
MARKED = 1.05

Times = dict[str, list[float]]  # what -> seconds of each call


class Side:
    """The work, in the process of one build."""

    def __init__(self, cluster: Cluster) -> None:
        self._pids = [os.getpid(), *(daemon.pid for daemon in cluster.daemons)]
        self._setting, self._asking = (
            Client(str(cluster[node].socket_path), "turns", timeout_s=30) for node in (0, 1)
        )
        self._from = self._setting.alloc(BUFFER_BYTES)
        self._to = self._asking.alloc(BUFFER_BYTES)
        self._round = 0

    def once(self, page_bytes: int, batch: int, calls: int) -> Times:
        self._round += 1
        took: Times = {"set": [], "exists": [], "get": []}
        offsets = list(range(0, BUFFER_BYTES // page_bytes * page_bytes, page_bytes))
        work = []
        for first in range(0, min(len(offsets) // batch, calls) * batch, batch):
            keys = [f"{self._round}/{number:060}" for number in range(first, first + batch)]
            work.append((keys, offsets[first : first + batch]))
        self._stamp()
        for keys, at in work:
            began = time.perf_counter()
            stored = self._setting.batch_set(keys, self._from, at, page_bytes)
            took["set"].append(time.perf_counter() - began)
            assert all(stored)
        before = Usage.of(self._pids)
        for keys, at in work:
            began = time.perf_counter()
            found = self._asking.batch_exists(keys)
            middle = time.perf_counter()
            came = self._asking.batch_get(keys, self._to, at, page_bytes)
            took["get"].append(time.perf_counter() - middle)
            took["exists"].append(middle - began)
            assert found == batch and all(came)
        took["cpu"] = [Usage.of(self._pids).since(before).busy_s]
        end = work[-1][1][-1] + page_bytes
        assert self._to.view[:end] == self._from.view[:end], "wrong bytes"
        self._setting.clear()
        return took

    def _stamp(self) -> None:
        """So that no two rounds have the same bytes."""
        for at in range(0, BUFFER_BYTES, 4 * KIB):
            self._from.view[at : at + 8] = (self._round << 32 | at >> 12).to_bytes(8, "little")


def serve(nodes: int) -> None:
    """Does what its standard input asks for, one line each."""
    with Cluster(nodes, options={"pool-size": "256MiB", "replica-share": "0"}) as cluster:
        # One by one: the oldest four are the owners, the same ones in both builds.
        names = [daemon.node_id for daemon in cluster.daemons]
        for count, daemon in enumerate(cluster.daemons, 1):
            daemon.start()
            daemon.wait_members(names[:count], 60)
        cluster.wait_complete(60)
        side = Side(cluster)
        print("ready", flush=True)
        for line in sys.stdin:
            print(json.dumps(side.once(*json.loads(line))), flush=True)


class Build:
    """A build's process, as seen from here."""

    def __init__(self, checkout: Path, nodes: int) -> None:
        python = checkout / ".venv" / "bin" / "python"
        if not python.exists():
            raise SystemExit(f"{checkout} has no .venv: run `make setup` there")
        self._process = subprocess.Popen(
            [python, __file__, "--serve", str(nodes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=checkout,
            env=os.environ | {"PYTHONPATH": str(checkout / "tests")},
        )
        self._read()

    def once(self, *cell: int) -> Times:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(cell) + "\n")
        self._process.stdin.flush()
        found: Times = json.loads(self._read())
        return found

    def close(self) -> None:
        self._process.communicate(timeout=60)

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"the process {self._process.pid} ended; see above")
        return line


@contextlib.contextmanager
def builds(nodes: int, *checkouts: Path) -> Iterator[list[Build]]:
    with contextlib.ExitStack() as stack:
        made = []
        for checkout in checkouts:
            made.append(Build(checkout, nodes))
            stack.callback(made[-1].close)
        yield made


def compare(other: Path, rounds: int, nodes: int) -> None:
    cells = [(kib * KIB, batch, calls) for kib, batch, calls in CELLS]
    found: dict[Any, tuple[Times, Times]] = {cell: ({}, {}) for cell in cells}
    with builds(nodes, other, HERE) as both:
        for turn in range(rounds + 1):
            for cell in cells:
                for which in (0, 1) if turn % 2 else (1, 0):
                    took = both[which].once(*cell)
                    if turn == 0:
                        continue  # touches the memory
                    for what, values in took.items():
                        found[cell][which].setdefault(what, []).extend(values)
    print(f"{nodes} nodes, {rounds} rounds; medians in us: {other}, this build, its share")
    print(
        "page KiB, batch        set               exists             get            processor time"
    )
    for cell, (before, after) in found.items():
        print(f"{cell[0] // KIB:6}, {cell[1]:4}", end="")
        for what in ("set", "exists", "get", "cpu"):
            old, new = (statistics.median(each[what]) * 1e6 for each in (before, after))
            mark = "!" if new > MARKED * old else " "
            print(f"{old:10.0f}{new:8.0f}{new / old:6.2f}{mark}", end="")
        print()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(int(sys.argv[2]))
    elif len(sys.argv) in (2, 3, 4):
        numbers = [int(text) for text in sys.argv[2:]]
        compare(Path(sys.argv[1]).resolve(), *numbers, *DEFAULTS[len(numbers) :])
    else:
        raise SystemExit('make bench-turns ARGS="CHECKOUT [ROUNDS [NODES]]"')
