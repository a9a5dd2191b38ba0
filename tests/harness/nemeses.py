"""Faults of a cluster's nodes while workers go on: death, silence, changed files. Afterwards all
nodes run and reach each other."""

from __future__ import annotations

import itertools
import random
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path

from harness.cluster import Cluster, Daemon
from harness.netns import Network
from harness.tangle import Tangle
from harness.waiting import eventually
from peercached.admin.client import AdminClient, Refused

# A node that came and went often must wait before it joins again (membership/flapping.py).
LET_IN_S = 240.0
TANGLED_S = 10.0
UNHEARD_S = 3.0  # at most, once nobody waits for a node that lives


class Nemeses:
    """Faults for a cluster of daemons with a disk and a pool file each. `network`: the hosts, if
    each daemon has a host of its own."""

    def __init__(
        self, cluster: Cluster, folder: Path, rng: random.Random, network: Network | None
    ) -> None:
        self._cluster = cluster
        self._backups = folder / "backups"
        self._rng = rng
        self._network = network
        self._numbers = itertools.count(1)
        # A context around each start, until all nodes have met. A node that is cut off or slow may
        # not find the others at once.
        self.starting_apart: Callable[[str], AbstractContextManager[None]] = lambda _: nullcontext()
        # A context around the time in which a node lives although the others need not wait for it.
        self.going_on_unheard: Callable[[str], AbstractContextManager[None]] = lambda _: (
            nullcontext()
        )
        # Called while all nodes are dead, before they forget everything.
        self.wiping: Callable[[], None] = lambda: None
        self._until_all_meet = ExitStack()
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
            self.all += [
                self.cut_off,
                self.kill_and_start_cut_off,
                self.forget_a_node_that_is_cut_off,
                self.forget_a_node_that_is_frozen,
                self.refuse_connections,
                self.give_its_address_to_another,
            ]
            if len(cluster.daemons) > 2:
                self.all.append(self.many_at_once)

    def befall(self, nemesis: Callable[[Daemon], None], daemon: Daemon) -> None:
        """Returns when all nodes have met again."""
        with self._until_all_meet:
            nemesis(daemon)
            self._cluster.wait_complete(LET_IN_S)

    def _start(self, daemon: Daemon) -> None:
        self._until_all_meet.enter_context(self.starting_apart(daemon.node_id))
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

    def kill_all_and_wipe(self, _: Daemon) -> None:
        """Afterwards only the object store has pages and knows of removals."""
        for one in self._cluster.daemons:
            one.kill()
        self.wiping()
        for one in self._cluster.daemons:
            for file in one.state_dir.glob(f"*-{one.node_id}.*"):
                file.unlink()
            shutil.rmtree(_disk(one))
            Path(str(one.options["pool-file"])).unlink()
        shutil.rmtree(self._backups, ignore_errors=True)
        for one in self._cluster.daemons:
            self._start(one)

    def stop(self, daemon: Daemon) -> None:
        assert daemon.stop(30) == 0
        self._others_are_alone(daemon)
        self._start(daemon)

    def leave(self, daemon: Daemon) -> None:
        """Leaves the cluster as the manual describes it for an upgrade."""
        with AdminClient(str(daemon.admin_path)) as admin:
            admin.drain(1 << 40, 60.0, False)
        self._wait_drained(daemon, "left")
        self.stop(daemon)

    def drain_and_stay(self, daemon: Daemon) -> None:
        with AdminClient(str(daemon.admin_path)) as admin:
            admin.drain(1 << 40, 60.0, True)
            self._wait_drained(daemon, "drained")
            admin.undrain()

    def _wait_drained(self, daemon: Daemon, state: str) -> None:
        eventually(
            lambda: daemon.status()["drain"]["state"] == state,
            30,
            lambda: f"{daemon.node_id} is {state}: {daemon.status()}",
        )

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

    # --- life after what looked like death

    def forget_a_node_that_is_cut_off(self, daemon: Daemon) -> None:
        with self._alone(daemon):
            self._forget(daemon)
            time.sleep(self._rng.uniform(0, UNHEARD_S))

    def forget_a_node_that_is_frozen(self, daemon: Daemon) -> None:
        daemon.freeze()
        self._others_are_alone(daemon)
        # An address that takes connections cannot be forgotten.
        with self._alone(daemon):
            self._forget(daemon)
            time.sleep(self._rng.uniform(0, UNHEARD_S))
        daemon.thaw()

    def _forget(self, daemon: Daemon) -> None:
        self._goes_on_unheard(daemon)

        def is_forgotten() -> bool:
            with suppress(Refused), AdminClient(str(other.admin_path)) as admin:
                admin.forget_node(daemon.node_id)
                return True
            return False

        other = self._rng.choice(self._others(daemon))
        # An answer of that host from before it was cut counts for half a second.
        eventually(is_forgotten, 10)

    def refuse_connections(self, daemon: Daemon) -> None:
        """Like a firewall with REJECT before a host that lives."""
        assert self._network is not None
        self._goes_on_unheard(daemon)
        self._network.replace(daemon.node_id)
        self._others_are_alone(daemon)
        time.sleep(self._rng.uniform(0, UNHEARD_S))
        self._network.restore(daemon.node_id)

    def give_its_address_to_another(self, daemon: Daemon) -> None:
        assert self._network is not None
        others = self._others(daemon)
        self._goes_on_unheard(daemon)
        another = Daemon(
            daemon.state_dir,
            node_id=f"{daemon.node_id}{next(self._numbers)}",
            host="127.0.0.1",  # where its ports are free
            heads=daemon.heads,
            meta_port=daemon.meta_port,
            options={k: v for k, v in daemon.options.items() if k not in _STORES},
        )
        another.spawn, another.patience = daemon.spawn, daemon.patience
        another.host, another.data_port = daemon.host, daemon.data_port
        another.launcher = self._network.replace(daemon.node_id)
        another.start()
        try:
            members = [another.node_id, *(other.node_id for other in others)]
            for member in [another, *others]:
                member.wait_members(members)
            time.sleep(self._rng.uniform(0, UNHEARD_S))
            if self._rng.random() < 0.5:
                assert another.stop(30) == 0
        finally:
            another.clean_up()
        self._network.restore(daemon.node_id)
        self._cluster.wait_complete(LET_IN_S)
        # Else a start of the whole cluster would wait for it, even if it said goodbye.
        with AdminClient(str(others[0].admin_path)) as admin:
            admin.forget_node(another.node_id, listening=True)

    def _goes_on_unheard(self, daemon: Daemon) -> None:
        self._until_all_meet.enter_context(self.going_on_unheard(daemon.node_id))

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
        """Copies state_dir, the disk folder and the pool file, while the daemon runs where that may
        be. Each may be restored alone, and the others later. A copy may be of an earlier start."""
        backup = self._backups / daemon.node_id
        parts = list(backup.iterdir()) if backup.exists() else []
        if not parts:
            for name, files in self._files(daemon).items():
                if name == "pool":
                    daemon.kill()
                (backup / name).mkdir(parents=True)
                for file in files:
                    _copy(file, backup / name)
            self._start(daemon)
            return
        daemon.kill()
        for part in self._rng.sample(parts, self._rng.randint(1, len(parts))):
            for file in self._files(daemon)[part.name]:
                shutil.rmtree(file) if file.is_dir() else file.unlink()
            for file in part.iterdir():
                _copy(file, self._folder_of(daemon, part.name))
            shutil.rmtree(part)
        self._start(daemon)

    @staticmethod
    def _files(daemon: Daemon) -> dict[str, list[Path]]:
        state = daemon.state_dir.glob(f"removals-{daemon.node_id}.*")
        return {
            # A `.new` file is still being written, to replace another.
            "state": [file for file in state if file.suffix != ".new"],
            "disk": [_disk(daemon)],
            "pool": [Path(str(daemon.options["pool-file"]))],
        }

    def _folder_of(self, daemon: Daemon, part: str) -> Path:
        return daemon.state_dir if part == "state" else self._files(daemon)[part][0].parent

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


_STORES = ("disk-enabled", "disk-path", "disk-size", "pool-file")


def _disk(daemon: Daemon) -> Path:
    return Path(str(daemon.options["disk-path"]))


def _copy(file: Path, to: Path) -> None:
    subprocess.run(["cp", "-a", file, to], check=True)
