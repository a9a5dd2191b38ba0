"""The tests' clock, for machines that are quicker or slower than the reference machine.

A claim such as "a death is noticed within its TTL" depends on the daemons' timers and on how much
work the machine gets done meanwhile. On a quick machine the work ends before a timer fires; on a
slow one timers fire before the work is done. Therefore:

* Tests give times in seconds of the reference machine: `seconds(1.5)`. They and the daemons'
  timers (harness.fixtures.FAST) are multiplied by PACE.
* A test waits for the event that it judges (`eventually`, `SteadyReader.check_whole`), never for a
  number of rounds: a quick machine finishes them before the event.
* Limits are compared with `now_s()`, a clock that stops while other processes have the machine.
* A test that fails while the machine stood still (harness.stalls) is run again, and reported.

TEST_PACE=10 tries both sides. On an idle machine the tests then find it ten times as quick as they
expect; beside busy loops that make it ten times slower, just as quick.
"""

import math
import os
import statistics
import threading

# By name: a simulator (tests/sim) puts a clock of its own in their place.
from time import monotonic, sleep

_REFERENCE_S = 0.15  # what _work() takes on the reference machine
_SLOW_FROM = 1.5  # now_s() covers what varies
_PACE_MAX = 25.0  # configured times have limits


def _work() -> float:
    """Seconds by the wall: a machine that is slow or has to share is told from a quick one."""
    began = monotonic()
    total = 0
    for number in range(2_000_000):
        total ^= number
    return monotonic() - began


def _measured() -> float:
    slower = statistics.median(_work() for _ in range(3)) / _REFERENCE_S
    return min(slower, _PACE_MAX) if slower >= _SLOW_FROM else 1.0


def _pace() -> float:
    if os.environ.get("RDMA_VM") == "qemu":
        return 10.0  # every instruction is emulated there, the clock is not
    if "RDMA_VM" in os.environ:
        return 1.0  # the kernel is a process; tests/rdma has times of its own
    given = os.environ.get("TEST_PACE")
    pace = float(given) if given else _measured()
    # For the processes that we start: those of xdist, hammers, workers.
    os.environ["TEST_PACE"] = f"{pace:.3g}"
    return float(os.environ["TEST_PACE"])


PACE = _pace()


def seconds(reference_s: float) -> float:
    """What takes so long on the reference machine may take so long here."""
    return reference_s * PACE


class BusyMachine:
    """A thread that sleeps 5 ms over and over: what it sleeps longer, others are late as well."""

    _SLEEP_S = 0.005

    def __init__(self) -> None:
        self._late_s = 0.0
        self._longest_s = 0.0
        self._due = math.inf
        self._pid = 0
        self._lock = threading.Lock()

    def late_s(self) -> float:
        """How late it has been in all, until now. The difference of two is what was in between."""
        with self._lock:
            if self._pid != os.getpid():
                self._pid = os.getpid()
                self._due = monotonic() + self._SLEEP_S
                threading.Thread(target=self._run, daemon=True, name="busy-machine").start()
            return self._late_s + max(0.0, monotonic() - self._due)

    def stood_still_s(self) -> float:
        """How late it has been at one time, at most, since forget_longest()."""
        with self._lock:
            return max(self._longest_s, monotonic() - self._due)

    def forget_longest(self) -> None:
        with self._lock:
            now = monotonic()
            if now > self._due:  # our thread may be late itself in saying so
                self._late_s += now - self._due
                self._due = now
            self._longest_s = 0.0

    def _run(self) -> None:
        while True:
            sleep(self._SLEEP_S)
            with self._lock:
                now = monotonic()
                late_s = max(0.0, now - self._due)
                self._late_s += late_s
                self._longest_s = max(self._longest_s, late_s)
                self._due = now + self._SLEEP_S


MACHINE = BusyMachine()


def now_s() -> float:
    """Monotonic seconds, without those in which the machine was late."""
    late_s = MACHINE.late_s()
    return monotonic() - late_s
