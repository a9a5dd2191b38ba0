"""Overlapping faults of several nodes, which begin and end independently: pairs of hosts that do
not reach each other, cut cables, and nodes that are frozen, killed or drained.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import combinations
from typing import TypeVar

from harness.cluster import Cluster, Daemon
from harness.netns import Network
from peercached.admin.client import AdminClient

T = TypeVar("T")

# Before the next fault begins or ends: some shorter than a heartbeat, some much longer.
PAUSES_S = (0.05, 0.2, 0.5, 1.0, 2.0)
DRAINING_S = 5.0


class Tangle:
    """Needs three daemons or more, each on its own host. `start` starts a node that may not reach
    the others."""

    def __init__(
        self,
        cluster: Cluster,
        rng: random.Random,
        network: Network,
        start: Callable[[Daemon], None],
    ) -> None:
        self._rng = rng
        self._network = network
        self._start = start
        self._untroubled = list(cluster.daemons)  # a process has one fault at a time
        self._plugged = [daemon.node_id for daemon in cluster.daemons]
        self._meeting = list(combinations(self._plugged, 2))
        self._most = len(cluster.daemons)

    def run(self, seconds: float) -> None:
        """Ends all faults before it returns."""
        kinds = [self._parted, self._parted, self._cut, self._frozen, self._killed, self._drained]
        until = time.monotonic() + seconds
        troubles: list[ExitStack] = []
        try:
            while time.monotonic() < until:
                if self._rng.random() < len(troubles) / self._most:
                    troubles.pop(self._rng.randrange(len(troubles))).close()
                else:
                    troubles.append(ExitStack())
                    troubles[-1].enter_context(self._rng.choice(kinds)())
                time.sleep(self._rng.choice(PAUSES_S))
        finally:
            for trouble in troubles:
                trouble.close()

    @contextmanager
    def _parted(self) -> Iterator[None]:
        with self._one_of(self._meeting) as pair:
            self._network.part(*pair)
            yield
            self._network.meet(*pair)

    @contextmanager
    def _cut(self) -> Iterator[None]:
        with self._one_of(self._plugged) as node_id:
            self._network.cut(node_id)
            yield
            self._network.heal(node_id)

    @contextmanager
    def _frozen(self) -> Iterator[None]:
        with self._one_of(self._untroubled) as daemon:
            daemon.freeze()
            yield
            daemon.thaw()

    @contextmanager
    def _killed(self) -> Iterator[None]:
        with self._one_of(self._untroubled) as daemon:
            daemon.kill()
            yield
            self._start(daemon)
            daemon.wait_ready()

    @contextmanager
    def _drained(self) -> Iterator[None]:
        with self._one_of(self._untroubled) as daemon:
            with AdminClient(str(daemon.admin_path)) as admin:
                admin.drain(1 << 40, DRAINING_S, True)
            yield
            with AdminClient(str(daemon.admin_path)) as admin:
                admin.undrain()

    @contextmanager
    def _one_of(self, left: list[T]) -> Iterator[T]:
        """Takes a random element out of the list during the block."""
        one = left.pop(self._rng.randrange(len(left)))
        yield one
        left.append(one)
