"""Random faults of daemons (harness.nemeses) with disks and pool files, and of workers, while
workers check every page that they read. Figures at the end.

With a store (store.py) the nodes also keep pages there. Pauses between the faults let workers read
old pages from it, and some faults wipe all nodes.

Wrong: a page that no set of its key made. Old: a page, or an exists, after its removal
(harness/history.py). Late: a call beyond its deadline, net of the machine's own lateness. Left
open: workers' memory that the daemons still have open after one more short use.
"""

from __future__ import annotations

import os
import random
import signal
import string
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path

from harness.background import Background
from harness.cluster import Cluster, Daemon
from harness.contested import KEYS, ContestingWorker, note_who_knows_of_clears
from harness.directory import wait_settled
from harness.disks import disk_options
from harness.history import History
from harness.nemeses import Nemeses
from harness.netns import Network
from harness.pages import keys_of
from harness.store_proxy import PAGE_READS
from harness.versions import DeviceVersions, Versions
from harness.waiting import eventually

from soak.store import Store

WORKERS = 6
MEMORY = (Versions, DeviceVersions)  # the workers have them in turns
VISITORS = 3
BRIEFLY_S = 5.0
LAST_PINS = 20  # rounds
ATTEMPTS = 5
# A removed key does not come from the store for a long time. So with a store the keys change: each
# turn has so many new ones, and they are in use for some turns. The nodes have room for few turns.
NEW_KEYS, TURN_S, TURNS = 1000, 15.0, 8
REMOVAL_S = 4.0  # with a store it takes a second or more
# Of all steps. Pages that are set faster than the store takes them never get there. Each listing of
# it has the removals of ten minutes, and a clear empties it.
SETS_WITH_STORE, REMOVALS_WITH_STORE, CLEARS_WITH_STORE = 0.08, 0.01, 0.0001
# Between two faults, on average, so that nodes live long enough to read from the store.
CALM_S = 8.0
WIPES = 4  # of all kinds of faults

MakeCluster = Callable[..., Cluster]


def names_of(count: int) -> str:
    """The names of `count` daemons: one letter each."""
    return string.ascii_lowercase[:count]


@lru_cache(maxsize=2 * TURNS)
def _keys_of_turn(turn: int) -> list[bytes]:
    return keys_of(f"turn {turn}", NEW_KEYS)


@dataclass
class Figures:
    reads: int = 0  # of pages, with every byte checked
    on_gpus: int = 0  # of these, in memory that plays a GPU
    operations: int = 0  # of single keys
    removals: int = 0
    pinned: int = 0
    moved: int = 0
    nemeses: int = 0
    to_store: int = 0  # pages, as the nodes count them
    from_store: int = 0
    wrong: int = 0
    old: int = 0
    late: int = 0
    tracebacks: int = 0
    left_open: int = 0
    lost: int = 0  # of the pages set at the end, without faults
    left_pinned: int = 0  # pages, after unpin, without faults
    untested: int = 0  # 1: there is a store; no page came from it, or no fault hit such a read

    def faults(self) -> dict[str, int]:
        """The figures that must be zero and are not."""
        never = (
            "wrong",
            "old",
            "late",
            "tracebacks",
            "left_open",
            "lost",
            "left_pinned",
            "untested",
        )
        return {name: getattr(self, name) for name in never if getattr(self, name)}

    def lines(self) -> list[str]:
        return [f"{one.name:<12}{getattr(self, one.name):>12,}" for one in fields(self)]


class CheckingWorker(ContestingWorker):
    """Counts each failed check and goes on."""

    def __init__(self, chaos: Chaos, *more: object) -> None:
        self._chaos = chaos
        self.page_bytes = chaos.page_bytes
        super().__init__(*more)  # type: ignore[arg-type]

    def keys(self) -> Sequence[bytes]:
        return self._chaos.keys()

    def keys_of_step(self, *, sets: bool) -> Sequence[bytes]:
        return self._chaos.keys_of_step(self._rng, sets)

    def step(self) -> None:
        try:
            super().step()
        except AssertionError as fault:
            kind = "wrong" if "two contents" in str(fault) else "old"
            figures = self._chaos.figures
            setattr(figures, kind, getattr(figures, kind) + 1)
            self._chaos.failed_during[kind, self._chaos.during[-1]] += 1
            during = f"{kind} after {', '.join(self._chaos.during[-3:])}:"
            notes = getattr(fault, "__notes__", ())
            self._chaos.said.append("\n".join([during, str(fault), *notes]))

    def landed_on_gpus(self) -> int:
        return sum(pages.landed for pages in self.pages() if isinstance(pages, DeviceVersions))

    def late_calls(self) -> list[str]:
        return [late for pages in self.pages() for late in pages.client.calls.too_late]


class Chaos:
    def __init__(
        self,
        make_cluster: MakeCluster,
        pools: list[dict[str, str]],
        folder: Path,
        seed: int,
        pause_s: float = 0.0,
        store: Store | None = None,
    ) -> None:
        """`pools`: the options that give each daemon its pool file. `pause_s`: of each worker
        between its calls."""
        nodes = names_of(len(pools))
        self.figures, self.said = Figures(), list[str]()
        self.during = ["no fault yet"]
        self.failed_during = Counter[tuple[str, str]]()  # by kind and fault
        self._history = History()
        self._rng = random.Random(seed)
        self._store = store
        self.page_bytes = store.page_bytes if store else ContestingWorker.page_bytes
        disks = disk_options(folder, nodes, **(store.disk if store else {}))
        stores = zip(disks, pools, strict=True)
        more = {"spill_bytes_per_s": 256 << 20, **(store.options if store else {})}
        each = [{**disk, **pool, **more} for disk, pool in stores]
        self.cluster = make_cluster(
            len(nodes),
            start=False,
            pool_size=store.pool_size if store else "2MiB",
            replica_share=0.3,
            gpu="stand-in",
            each=each,
        )
        self._folder = folder
        self._pause_s = pause_s
        self._counted: dict[tuple[int, str], int] = {}  # of pages of the store, by process

    def run(self, seconds: float, network: Network | None, only: Sequence[str] = ()) -> Figures:
        """`only`: the names of faults; else all."""
        if network is not None:
            network.place(self.cluster)
        for daemon in self.cluster.daemons:
            daemon.heads = [other.address for other in self.cluster.daemons]
        self.cluster.start()
        befalls = Nemeses(self.cluster, self._folder, self._rng, network)
        befalls.starting_apart = self._history.starting_apart
        befalls.going_on_unheard = self._history.going_on_unheard
        kinds = [*befalls.all, self._kill_visitors]
        if self._store is not None:
            kinds += [befalls.kill_all_and_wipe] * WIPES
            befalls.wiping = self._history.forget_unsure
        if only:
            kinds = [kind for kind in kinds if kind.__name__ in only]
        if self._store is not None:
            self._store.disturb()
        self._work_while(lambda: self._befall(seconds, befalls, kinds))
        if self._store is not None:
            self._store.calm_down()
            hits = self._store.faults.get(PAGE_READS, 0)
            self.figures.untested = int(not (self.figures.from_store and hits))
        self._wait_told_all()
        before, after = [self._open_after_use() for _ in range(2)]
        self.figures.left_open = max(after - before, 0)
        self._set_and_read_all()
        self._pin_move_and_unpin()
        self._count()
        return self.figures

    def keys(self) -> Sequence[bytes]:
        if self._store is None:
            return KEYS
        turn = int(time.monotonic() / TURN_S)
        return [key for ago in range(TURNS) for key in _keys_of_turn(turn - ago)]

    def keys_of_step(self, rng: random.Random, sets: bool) -> Sequence[bytes]:
        """With a store those of one turn: their pages lie together there. New pages are set."""
        if self._store is None:
            return KEYS
        return _keys_of_turn(int(time.monotonic() / TURN_S) - (0 if sets else rng.randrange(TURNS)))

    # --- work and faults

    def _work_while(self, action: Callable[[], object]) -> None:
        timeout_s = 1.0 if self._store is None else REMOVAL_S
        with ExitStack() as clients:
            workers = [
                CheckingWorker(
                    self, self.cluster, self._history, n, clients, MEMORY[n % 2], timeout_s
                )
                for n in range(WORKERS)
            ]
            if self._store is not None:
                for worker in workers:
                    worker.sets, worker.removals = SETS_WITH_STORE, REMOVALS_WITH_STORE
                    worker.clears = CLEARS_WITH_STORE
            with ExitStack() as threads:
                for worker in workers:
                    threads.enter_context(Background(worker.step, self._pause_s))
                action()
            for worker in workers:
                self.figures.on_gpus += worker.landed_on_gpus()
                self.figures.late += len(late := worker.late_calls())
                self.said += late

    def _befall(
        self, seconds: float, befalls: Nemeses, nemeses: list[Callable[[Daemon], None]]
    ) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for nemesis in self._rng.sample(nemeses, len(nemeses)):
                if time.monotonic() >= until:
                    return
                daemon = self._rng.choice(self.cluster.daemons)
                self.during.append(f"{nemesis.__name__} at {daemon.node_id}")
                befalls.befall(nemesis, daemon)
                if self._store is None:  # else it may be the store that has not heard of it
                    note_who_knows_of_clears(self.cluster, self._history)
                if self._store is not None:
                    time.sleep(self._rng.uniform(0.0, 2 * CALM_S))
                self._count_pages_of_store()
                self.figures.nemeses += 1

    def _count_pages_of_store(self) -> None:
        """Counters begin anew with each start of a node."""
        if self._store is None:
            return
        for daemon in self.cluster.daemons:
            cold = daemon.status()["cold"]
            for figure, name in (("to_store", "written_pages"), ("from_store", "read_pages")):
                new = cold[name] - self._counted.get((daemon.pid, name), 0)
                setattr(self.figures, figure, getattr(self.figures, figure) + new)
                self._counted[daemon.pid, name] = cold[name]

    def _kill_visitors(self, daemon: Daemon) -> None:
        """Kills workers that have forked, all at once, in the middle of their calls."""
        memory = self._rng.choice(MEMORY).__name__
        command = [sys.executable, "-m", "soak.visitor", str(daemon.socket_path), memory]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
        visitors = [
            subprocess.Popen(
                command, stdout=subprocess.PIPE, env=environment, start_new_session=True
            )
            for _ in range(VISITORS)
        ]
        for visitor in visitors:
            assert visitor.stdout is not None
            for _ in range(self._rng.randint(2, 20)):
                visitor.stdout.readline()
        for visitor in visitors:
            self.figures.wrong += visitor.poll() == 1
            with suppress(ProcessLookupError):
                os.killpg(visitor.pid, signal.SIGKILL)
            assert visitor.stdout is not None
            visitor.stdout.close()
            assert visitor.wait() in (1, -signal.SIGKILL)

    # --- afterwards

    def _wait_told_all(self) -> None:
        for daemon in self.cluster.daemons:

            def is_told_all(daemon: Daemon = daemon) -> bool:
                removals = daemon.status()["removals"]
                return not removals["owes"] and not (removals["running"] or removals["unsure"])

            def state(daemon: Daemon = daemon) -> str:
                status = daemon.status()
                return f"{daemon.node_id}: {status['removals']}, {status['cold']}"

            eventually(is_told_all, 60, state)
            eventually(lambda: self._is_quiet(daemon), 60, f"{daemon.node_id} is quiet")  # noqa: B023

    @staticmethod
    def _is_quiet(daemon: Daemon) -> bool:
        now = daemon.status()
        return not (now["workers"] or now["ipc"]["connections"] or now["pool"]["reserved"])

    def _open_after_use(self) -> int:
        self._work_while(lambda: time.sleep(BRIEFLY_S))
        for daemon in self.cluster.daemons:
            eventually(lambda: self._is_quiet(daemon), 60, f"{daemon.node_id} is quiet")  # noqa: B023
        return self._open()

    def _open(self) -> int:
        """Counts workers' memory at all daemons. Sockets and events are kept for reuse."""
        count = 0
        for daemon in self.cluster.daemons:
            process = Path(f"/proc/{daemon.pid}")
            for file in (process / "fd").iterdir():
                with suppress(FileNotFoundError):
                    count += "memfd:" in str(file.readlink())
            count += (process / "maps").read_text().count("memfd:")
        return count

    def _set_and_read_all(self) -> None:
        """Without other workers, every node reads the pages that one node sets. On a machine that
        stalls, a member may be suspect or out for a moment, and its pages are misses: then this is
        done again."""
        for _ in range(ATTEMPTS):
            disturbed = self._disturbances()
            self.figures.lost = self._lost()
            if not self.figures.lost or self._disturbances() == disturbed:
                return
            wait_settled(self.cluster.daemons, 60)

    def _lost(self) -> int:
        lost = 0
        with ExitStack() as clients:
            worker = ContestingWorker(self.cluster, self._history, WORKERS, clients)
            for daemon in self.cluster.daemons:
                lost += sum(not one for one in worker.set(daemon.node_id, KEYS[:100]))
                before = self._history.hits
                for other in self.cluster.daemons:
                    worker.read(other.node_id, KEYS[:100])
                lost += 100 * len(self.cluster) - (self._history.hits - before)
        return lost

    def _disturbances(self) -> int:
        logs = [daemon.log_text() for daemon in self.cluster.daemons]
        return sum(log.count(" is suspect: ") + log.count(": new view ") for log in logs)

    def _pin_move_and_unpin(self) -> None:
        """No pin is forgotten of a page that moved while it was pinned."""
        with ExitStack() as clients:
            worker = ContestingWorker(self.cluster, self._history, WORKERS + 1, clients)
            for _ in range(LAST_PINS):
                for daemon in self.cluster.daemons:
                    worker.keep(daemon.node_id, self._rng.sample(KEYS, 20))
                    worker.move(daemon.node_id, self._rng.sample(KEYS, 20))
            # Workers' pins of the last seconds, too: with a store they have other keys.
            worker.pages()[0].client.unpin(list({*KEYS, *self.keys()}))
        for daemon in self.cluster.daemons:
            self.figures.left_pinned += daemon.status()["pins"]["pages"]

    def _count(self) -> None:
        history = self._history
        self.figures.reads, self.figures.operations = history.hits, history.operations
        self.figures.removals = history.sure
        self.figures.pinned, self.figures.moved = history.pinned, history.moved
        for daemon in self.cluster.daemons:
            log = daemon.log_text()
            self.figures.tracebacks += log.count("Traceback (most recent call last)")
            if "Traceback (most" in log:
                self.said.append(log[log.index("Traceback (most") :][:3000])
