"""Three of four daemons are killed in turn, while workers check every page that they read.

Prints how many reads per second that costs.

    make soak-flapping ARGS=10      minutes
"""

from __future__ import annotations

import logging
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

from harness.cluster import Daemon
from harness.fixtures import cluster_maker
from harness.nemeses import Nemeses
from harness.waiting import eventually
from harness.warm_pools import some_pool_files

from soak.chaos import Chaos

CALM_S = 30.0
EACH_S = 5.0  # from one death to the next
DAEMONS = 4


class Flapping(Chaos):
    """Kills the next daemon whether or not the last one is a member again."""

    def _befall(
        self, seconds: float, befalls: Nemeses, nemeses: list[Callable[[Daemon], None]]
    ) -> None:
        del befalls, nemeses
        stays, *others = self.cluster.daemons
        calm = self._reads_per_s(lambda: time.sleep(CALM_S))
        views = _view_number(stays)
        held_back: list[Daemon] = []
        until = time.monotonic() + seconds

        def flap() -> None:
            while (now := time.monotonic()) < until:
                daemon = others[self.figures.nemeses % len(others)]
                daemon.kill()
                eventually(lambda: daemon.node_id not in _members(stays), 60)  # noqa: B023
                starting.enter_context(self._history.starting_apart(daemon.node_id))
                daemon.start()
                self.figures.nemeses += 1
                time.sleep(max(now + EACH_S - time.monotonic(), 0.0))
                held_back.extend(one for one in others if _waits(one))

        with ExitStack() as starting:
            meanwhile = self._reads_per_s(flap)
            views = _view_number(stays) - views
            began = time.monotonic()
            self.cluster.wait_complete(1200)
        print(
            f"{self.figures.nemeses} deaths, {views} new views; a daemon was held back at "
            f"{len(held_back)} of {self.figures.nemeses * len(others)} looks; all were members "
            f"again after {time.monotonic() - began:.0f} s\n"
            f"verified reads per second: {calm:,.0f} before, {meanwhile:,.0f} meanwhile"
        )

    def _reads_per_s(self, action: Callable[[], None]) -> float:
        before, began = self._history.hits, time.monotonic()
        action()
        return (self._history.hits - before) / (time.monotonic() - began)


def _view_number(daemon: Daemon) -> int:
    return int(daemon.status()["membership"]["view_number"])


def _members(daemon: Daemon) -> set[str]:
    return set(daemon.members())


def _waits(daemon: Daemon) -> bool:
    """Whether the others let it wait before it joins."""
    with suppress(Exception):  # it is starting
        return "not_a_member_yet" in daemon.codes()
    return False


def main(minutes: float) -> int:
    logging.disable(logging.WARNING)  # clients warn whenever their daemon comes or goes
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="peercached-flaps-")))
        files = stack.enter_context(some_pool_files())
        defaults = {"heartbeat-interval-s": 0.25, "member-ttl-s": 1.5}
        flapping = Flapping(
            cluster_maker(stack, defaults, 30.0), files.options(DAEMONS), folder, seed=1
        )
        figures = flapping.run(60 * minutes, None)
    print("\n".join(figures.lines()))
    print("passed" if not figures.faults() else "FAILED: the figures from wrong on must be 0")
    print("\n\n".join(flapping.said[:10]))
    return 1 if figures.faults() else 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]) if len(sys.argv) > 1 else 10.0))
