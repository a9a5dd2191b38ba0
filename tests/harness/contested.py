"""Workers that set, remove, clear and read a few keys on all nodes of a cluster. Each get and each
exists is checked against the removals that ended before it began (harness/history.py)."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import compress

from harness.clock import seconds
from harness.cluster import Cluster
from harness.history import History, Span
from harness.pages import keys_of
from harness.versions import Versions
from peercache_client import Status
from peercached.admin.client import AdminClient, Refused, Unreachable

KEYS = keys_of("contested", 200)
GONE = (Status.ok, Status.absent)
DECIDED = (Status.ok, Status.removing, Status.draining, Status.no_space)
BATCH = 20
PINNED_S = 5.0


class ContestingWorker:
    """Uses a random node for each step, with a short deadline."""

    sets, removals, clears = 0.32, 0.15, 0.002  # of all steps
    page_bytes = 8192

    def __init__(
        self,
        cluster: Cluster,
        history: History,
        seed: int,
        stack: ExitStack,
        memory: type[Versions] = Versions,
        timeout_s: float = 1.0,
    ) -> None:
        self._rng = random.Random(seed)
        self._cluster = cluster
        self._history = history
        self._at = {
            daemon.node_id: stack.enter_context(
                memory(
                    daemon.socket_path,
                    page_bytes=self.page_bytes,
                    room_pages=len(KEYS),
                    timeout_s=seconds(timeout_s),
                )
            )
            for daemon in cluster.daemons
        }

    def keys(self) -> Sequence[bytes]:
        """All keys that are in use now."""
        return KEYS

    def keys_of_step(self, *, sets: bool) -> Sequence[bytes]:
        """Those of them that the next step may use. `sets`: it sets them."""
        del sets
        return self.keys()

    def pages(self) -> list[Versions]:
        """The worker's pages at each node."""
        return list(self._at.values())

    def step(self) -> None:
        node_id = self._rng.choice(list(self._at))
        chance = self._rng.random()
        sets = 0.03 <= chance < 0.03 + self.sets
        keys = self._rng.sample(self.keys_of_step(sets=sets), self._rng.randint(1, BATCH))
        if chance < self.clears:
            self.clear(node_id)
        elif chance < 0.02:
            self.keep(node_id, keys)
        elif chance < 0.03:
            self.move(node_id, keys)
        elif sets:
            self.set(node_id, keys)
        elif chance < 0.03 + self.sets + self.removals:
            self.remove(node_id, keys)
        elif chance < 0.9:
            self.read(node_id, keys)
        else:
            self.look(node_id, keys)
        if Status.no_daemon in self._at[node_id].statuses:
            time.sleep(0.01)  # do not spin while that node is down
        else:
            self._history.operations += len(keys)

    def set(self, node_id: str, keys: Sequence[bytes]) -> list[Status]:
        """All keys of a call share a version. If one may still be stored later, so may all."""
        version = self._history.begin_set(time.monotonic(), keys, node_id)
        statuses = self._at[node_id].set(keys, version)
        if all(status in DECIDED for status in statuses):
            self._history.sets[version].ended = time.monotonic()
        for key, status in zip(keys, statuses, strict=True):
            if status == Status.ok:
                self._history.stored(key, version, node_id)
        return statuses

    def remove(self, node_id: str, keys: Sequence[bytes]) -> None:
        began = time.monotonic()
        statuses = self._at[node_id].remove(keys)
        removal = Span(began, time.monotonic(), where=node_id)
        for key, status in zip(keys, statuses, strict=True):
            if status in GONE:
                self._history.removed(key, removal)
            elif status == Status.removing:
                self._history.removing(key, removal, node_id)

    def keep(self, node_id: str, keys: Sequence[bytes]) -> None:
        """Pins or unpins pages, and perhaps copies them to that node first."""
        client = self._at[node_id].client
        if self._rng.random() < 0.2:
            client.unpin(keys)
            return
        for_s, here = self._rng.uniform(0.1, PINNED_S), self._rng.random() < 0.5
        self._history.pinned += sum(map(bool, client.pin(keys, for_s, here=here)))

    def move(self, node_id: str, keys: Sequence[bytes]) -> None:
        """Pages of that node's pool, if it is up and knows the other one."""
        (daemon,) = (one for one in self._cluster.daemons if one.node_id == node_id)
        to = self._rng.choice([other for other in self._at if other != node_id])
        with suppress(Refused, Unreachable), AdminClient(str(daemon.admin_path), 1.0) as admin:
            self._history.moved += admin.move("test", list(keys), to).pages

    def clear(self, node_id: str) -> None:
        removal = Span(time.monotonic(), where=f"{node_id}, cleared")
        self._history.clears.append(removal)
        if self._at[node_id].clear():
            removal.ended = time.monotonic()
            for key in self.keys():
                self._history.removed(key, removal)
        else:
            self._history.half_cleared.append(removal)

    def read(self, node_id: str, keys: Sequence[bytes]) -> None:
        began = time.monotonic()
        for key, version in zip(keys, self._at[node_id].get(keys), strict=True):
            if version is not None:
                with self._explained(key):
                    self._history.read(key, version, began, node_id)

    def look(self, node_id: str, keys: Sequence[bytes]) -> None:
        began = time.monotonic()
        there = self._at[node_id].contains(keys)
        asked = Span(began, time.monotonic())
        for key in compress(keys, there):
            with self._explained(key):
                self._history.found(key, asked, node_id)

    @contextmanager
    def _explained(self, key: bytes) -> Iterator[None]:
        try:
            yield
        except AssertionError as error:
            for daemon in self._cluster.daemons:
                try:
                    with AdminClient(str(daemon.admin_path)) as admin:
                        error.add_note(f"{daemon.node_id}: {admin.locate('test', key)}")
                        error.add_note(f"{daemon.node_id}: {admin.trace('test', key)}")
                except Exception as silent:
                    error.add_note(f"{daemon.node_id}: {silent}")
            raise


def note_who_knows_of_clears(cluster: Cluster, history: History) -> None:
    half_cleared, epochs = list(history.half_cleared), set[int]()
    for daemon in cluster.daemons:
        with AdminClient(str(daemon.admin_path)) as admin:
            epochs.add(admin.locate("test", KEYS[0]).epoch)
    if len(epochs) == 1:
        for clear in half_cleared:
            clear.ended = time.monotonic()
            history.half_cleared.remove(clear)
