"""Faults of a cluster's nodes while workers go on: death, silence, changed files. Afterwards all
nodes run and reach each other."""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path

from harness.cluster import Cluster, Daemon
from harness.netns import Network
from harness.tangle import Tangle
from harness.waiting import eventually
from peercached.admin.client import AdminClient

# A node that came and went often must wait before it joins again (membership/flapping.py).
LET_IN_S = 240.0
TANGLED_S = 10.0


class Nemeses:
    """Faults for a cluster whose daemons have a disk and a pool file each. `network`: the hosts, if
    each daemon has a host of its own."""

    def __init__(
        self, cluster: Cluster, folder: Path, rng: random.Random, network: Network | None
    ) -> None:
        self._cluster = cluster
        self._backups = folder / "backups"
        self._rng = rng
        self._network = network
        # A context around each start, until all nodes have met. A node that is cut off or slow may
        # not find the others at once.
        self.starting_apart: Callable[[str], AbstractContextManager[None]] = lambda _: nullcontext()
        self._starting = ExitStack()
        self.all: list[Callable[[Daemon], None]] = [
            self.kill,
            self.kill_and_stay_away,
            self.kill_all,
            self.stop,
            self.leave,
            self.drain_and_stay,
            self.freeze,
            self.freeze_and_kill_another,
            self.start_once_without_a_store,
            self.start_once_with_another_folder,
            self.stop_with_a_slow_disk,
            self.stop_with_a_full_disk,
            self.make_or_restore_a_backup,
        ]
        if network is not None:
            self.all += [self.cut_off, self.kill_and_start_cut_off]
            if len(cluster.daemons) > 2:
                self.all.append(self.many_at_once)

    def befall(self, nemesis: Callable[[Daemon], None], daemon: Daemon) -> None:
        """Returns when all nodes have met again."""
        with self._starting:
            nemesis(daemon)
            self._cluster.wait_complete(LET_IN_S)

    def _start(self, daemon: Daemon) -> None:
        self._starting.enter_context(self.starting_apart(daemon.node_id))
        daemon.start()

    # --- death

    def kill(self, daemon: Daemon) -> None:
        daemon.kill()
        self._start(daemon)

    def kill_and_stay_away(self, daemon: Daemon) -> None:
        daemon.kill()
        self._others_are_alone(daemon)
        self._start(daemon)

    def kill_all(self, daemon: Daemon) -> None:
        """Kills `daemon` before the others, and starts it last."""
        daemon.kill()
        self._others_are_alone(daemon)
        for other in self._others(daemon):
            other.kill()
        for other in [*self._others(daemon), daemon]:
            self._start(other)

    def stop(self, daemon: Daemon) -> None:
        assert daemon.stop(30) == 0
        self._others_are_alone(daemon)
        self._start(daemon)

    def leave(self, daemon: Daemon) -> None:
        """Leaves the cluster as the manual describes it for an upgrade."""
        with AdminClient(str(daemon.admin_path)) as admin:
            admin.drain(1 << 40, 60.0, False)
        eventually(lambda: daemon.status()["drain"]["state"] == "left", 30)
        self.stop(daemon)

    def drain_and_stay(self, daemon: Daemon) -> None:
        with AdminClient(str(daemon.admin_path)) as admin:
            admin.drain(1 << 40, 60.0, True)
            eventually(lambda: daemon.status()["drain"]["state"] == "drained", 30)
            admin.undrain()

    # --- silence

    def freeze(self, daemon: Daemon) -> None:
        daemon.freeze()
        self._others_are_alone(daemon)
        daemon.thaw()

    def freeze_and_kill_another(self, daemon: Daemon) -> None:
        daemon.freeze()
        other = self._rng.choice(self._others(daemon))
        other.kill()
        self._start(other)
        daemon.thaw()

    def cut_off(self, daemon: Daemon) -> None:
        with self._alone(daemon):
            daemon.wait_members([daemon.node_id])

    def kill_and_start_cut_off(self, daemon: Daemon) -> None:
        with self._alone(daemon):
            daemon.kill()
            self._start(daemon)
            daemon.wait_ready()

    @contextmanager
    def _alone(self, daemon: Daemon) -> Iterator[None]:
        assert self._network is not None
        self._network.split([daemon.node_id])
        self._others_are_alone(daemon)
        yield
        self._network.unite([daemon.node_id])

    # --- changed files

    def start_once_without_a_store(self, daemon: Daemon) -> None:
        without = self._rng.choice([("disk-",), ("pool-file",), ("disk-", "pool-file")])
        daemon.kill()
        options = daemon.options
        daemon.options = {k: v for k, v in options.items() if not k.startswith(without)}
        self._run_once(daemon)
        daemon.options = options
        self._start(daemon)

    def start_once_with_another_folder(self, daemon: Daemon) -> None:
        folder = _disk(daemon)
        aside = folder.with_suffix(".aside")
        assert daemon.stop(30) == 0
        folder.rename(aside)
        self._run_once(daemon)
        shutil.rmtree(folder)
        aside.rename(folder)
        self._start(daemon)

    def stop_with_a_slow_disk(self, daemon: Daemon) -> None:
        self._with_faults(daemon, "disk_write_stall=0.5,disk_stall_ms=500")

    def stop_with_a_full_disk(self, daemon: Daemon) -> None:
        self._with_faults(daemon, "disk_no_space=0.7")

    def _with_faults(self, daemon: Daemon, faults: str) -> None:
        daemon.kill()
        daemon.options["faults"] = faults
        self._run_once(daemon)
        del daemon.options["faults"]
        self._start(daemon)

    def _run_once(self, daemon: Daemon) -> None:
        self._start(daemon)
        self._cluster.wait_complete(LET_IN_S)
        if self._rng.random() < 0.5:
            assert daemon.stop(30) == 0
        else:
            daemon.kill()

    def make_or_restore_a_backup(self, daemon: Daemon) -> None:
        """Copies the files while the daemon runs. A restored copy may be of an earlier start."""
        backup = self._backups / daemon.node_id
        state = daemon.state_dir.glob(f"removals-{daemon.node_id}.*")
        # A `.new` file is still being written, to replace another.
        files = [_disk(daemon), *(file for file in state if file.suffix != ".new")]
        if backup.exists():
            daemon.kill()
            for file in files:
                shutil.rmtree(file) if file.is_dir() else file.unlink()
                _copy(backup / file.name, file.parent)
            shutil.rmtree(backup)
            self._start(daemon)
        else:
            backup.mkdir(parents=True)
            for file in files:
                _copy(file, backup)

    # --- several faults at once

    def many_at_once(self, _: Daemon) -> None:
        assert self._network is not None
        Tangle(self._cluster, self._rng, self._network, self._start).run(TANGLED_S)

    # --- helpers

    def _others(self, daemon: Daemon) -> list[Daemon]:
        return [other for other in self._cluster.daemons if other is not daemon]

    def _others_are_alone(self, daemon: Daemon) -> None:
        others = self._others(daemon)
        for other in others:
            other.wait_members([member.node_id for member in others])


def _disk(daemon: Daemon) -> Path:
    return Path(str(daemon.options["disk-path"]))


def _copy(file: Path, to: Path) -> None:
    subprocess.run(["cp", "-a", file, to], check=True)
