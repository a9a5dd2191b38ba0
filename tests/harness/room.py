"""Holds a test back while the machine is full.

Most of a test's time is waiting: for a TTL, for a dead peer. So many tests run at once. If their
processes get too few processors, timers fire before the work is done. Tests then fail, and a test
that fails waits the longest. So a worker of pytest-xdist begins no test while too many threads of
the machine wait for a processor, and on a busy machine one test begins at a time.
"""

import fcntl
import os
import threading
from time import monotonic, sleep

# Threads that run or want to, for each processor.
_BUSY, _FULL = 2.0, 4.0
_SAMPLE_S = 0.05
_REMEMBERED = 40  # samples: 2 s
_STARTING_S = 0.5  # until the threads of a test that has begun are seen
# Other processes than the tests may fill the machine for ever, or that of another container.
_PATIENCE_S = 120.0


class Room:
    """The number of threads that run or want to, averaged over 2 s. A thread measures it."""

    def __init__(self) -> None:
        self._cores = len(os.sched_getaffinity(0))
        self._runnable = 0.0
        self._waits = True
        # All workers lock this file here.
        self._turn = os.open(__file__, os.O_RDONLY | os.O_CLOEXEC)
        # Stays open: some tests leave no free descriptor.
        self._load = os.open("/proc/loadavg", os.O_RDONLY | os.O_CLOEXEC)
        threading.Thread(target=self._run, daemon=True, name="room").start()

    def wait(self) -> None:
        """Waits for room. If there is none for two minutes, it does not wait any more."""
        if not self._waits or self._runnable <= _BUSY * self._cores:
            return
        deadline = monotonic() + _PATIENCE_S
        while not self._begins():
            if monotonic() > deadline:
                self._waits = False
                return
            sleep(_SAMPLE_S)

    def _begins(self) -> bool:
        if self._runnable > _FULL * self._cores:
            return False
        try:
            fcntl.flock(self._turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        sleep(_STARTING_S)
        fcntl.flock(self._turn, fcntl.LOCK_UN)
        return True

    def _run(self) -> None:
        while True:
            now = int(os.pread(self._load, 128, 0).split()[3].partition(b"/")[0])
            self._runnable += (now - self._runnable) / _REMEMBERED
            sleep(_SAMPLE_S)
