"""The tests' clock, for machines that are quicker or slower than the reference machine.

A claim such as "a death is noticed within its TTL" depends on the daemons' timers and on how much
work the machine does meanwhile. A quick machine ends the work before a timer fires. On a slow one
timers fire before the work is done. Therefore:

* Tests give times in seconds of the reference machine: `seconds(1.5)`. PACE multiplies them and
  the daemons' timers (harness.fixtures.FAST).
* A test waits for the event that it judges (`eventually`, `SteadyReader.check_whole`), never for a
  number of rounds: a quick machine finishes them before the event.
* Limits are compared with `now_s()`, a clock that stops while other processes have the machine.
* A test that fails while the machine stood still (harness.stalls) runs again and is reported.
* If a few tests fail among many, tools/suite runs those again, with less beside them.

TEST_PACE=10 tests both sides. An idle machine is then ten times as quick as the tests expect. With
busy loops that make it ten times slower, it is just as quick as they expect.
"""

import math
import os
import statistics
import threading

# Imported by name, because a simulator (tests/sim) replaces them with its own clock.
from time import monotonic, sleep

_REFERENCE_S = 0.15  # the time of _work() on the reference machine
_SLOW_FROM = 1.5  # now_s() covers smaller variations
_PACE_MAX = 25.0  # configured times have limits


def _work() -> float:
    """Wall-clock seconds of a fixed computation, so that a shared machine counts as slow."""
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
        return 10.0  # QEMU emulates every instruction, but not the clock
    if "RDMA_VM" in os.environ:
        return 1.0  # UML runs at near full speed; tests/rdma sets its own times
    given = os.environ.get("TEST_PACE")
    pace = float(given) if given else _measured()
    # Child processes (of xdist, hammers, workers) inherit the pace.
    os.environ["TEST_PACE"] = f"{pace:.3g}"
    return float(os.environ["TEST_PACE"])


PACE = _pace()


def seconds(reference_s: float) -> float:
    """Converts seconds of the reference machine to seconds of this machine."""
    return reference_s * PACE


class BusyMachine:
    """A thread that sleeps 5 ms over and over. If it oversleeps, other threads are late, too."""

    _SLEEP_S = 0.005

    def __init__(self) -> None:
        self._late_s = 0.0
        self._longest_s = 0.0
        self._due = math.inf
        self._pid = 0
        self._lock = threading.Lock()

    def late_s(self) -> float:
        """The total lateness until now. The difference of two calls is the lateness in between."""
        with self._lock:
            if self._pid != os.getpid():
                self._pid = os.getpid()
                self._due = monotonic() + self._SLEEP_S
                threading.Thread(target=self._run, daemon=True, name="busy-machine").start()
            return self._late_s + max(0.0, monotonic() - self._due)

    def stood_still_s(self) -> float:
        """The longest single lateness since forget_longest()."""
        with self._lock:
            return max(self._longest_s, monotonic() - self._due)

    def forget_longest(self) -> None:
        with self._lock:
            now = monotonic()
            if now > self._due:  # our thread may not have counted it yet
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
    """Monotonic seconds, minus the time that the machine was late."""
    late_s = MACHINE.late_s()
    return monotonic() - late_s
