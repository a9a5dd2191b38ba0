"""Times a worker's calls against their deadlines, without the time that the machine was late."""

import math
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from harness.clock import MACHINE, seconds
from harness.waiting import CALL_S
from peercache_client import Client, Status
from peercache_client.session import SILENCE_TIMEOUT_S

# Tolerance beyond a call's deadline. The client itself uses 0.1 s of it to wait for a reply that is
# on its way. In a VM of tests/rdma the processor is emulated or late, so there is no limit.
SLACK_S = math.inf if "RDMA_VM" in os.environ else seconds(0.3)


class CallTimes:
    """The call times of one client, net of the machine's lateness. Thread safe."""

    def __init__(self, slack_s: float = SLACK_S) -> None:
        self.longest_s = 0.0
        self._longest_part = 0.0
        self._slack_s = slack_s
        self.too_late: list[str] = []
        self._lock = threading.Lock()

    def forget_longest(self) -> None:
        """From now on the longest call is one of the later calls."""
        self.longest_s = self._longest_part = 0.0

    @contextmanager
    def of(self, name: str, deadline_s: float) -> Iterator[None]:
        """Times the call within this block."""
        late_before_s, began = MACHINE.late_s(), time.monotonic()
        try:
            yield
        finally:
            wall_s = time.monotonic() - began
            late_s = MACHINE.late_s() - late_before_s
            took_s = max(0.0, wall_s - late_s)
            with self._lock:
                self.longest_s = max(self.longest_s, took_s)
                self._longest_part = max(self._longest_part, took_s / deadline_s)
                if took_s > deadline_s + self._slack_s:
                    self.too_late.append(
                        f"{name} took {took_s:.3f} s and had {deadline_s:g} s"
                        f" (the machine's {late_s:.3f} s are not counted)"
                    )

    def check_none_waited(self) -> None:
        """AssertionError if a call may have waited for a peer that did not answer. Such a call
        lasts until its deadline, provided that `rpc_timeout_ms` is longer. The limit is half the
        deadline, so that a machine that starves for a second does not fail the test."""
        assert self._longest_part < 0.5, (
            f"a call waited for somebody: {self._longest_part:.0%} of its deadline"
        )

    def check(self) -> None:
        """AssertionError if a call of this client exceeded its deadline."""
        assert not self.too_late, "; ".join(self.too_late)


class TimedClient(Client):
    """A client with measured calls, each against its own deadline."""

    def __init__(
        self, socket_path: str, namespace: str, *, timeout_s: float = CALL_S, slack_s: float
    ) -> None:
        super().__init__(socket_path, namespace, timeout_s=timeout_s)
        self.calls = CallTimes(slack_s)
        self._usual_s = timeout_s

    def batch_set(self, *words: Any, timeout_s: float | None = None, **more: Any) -> list[Status]:
        with self._timed("batch_set", timeout_s):
            return super().batch_set(*words, timeout_s=timeout_s, **more)

    def batch_get(self, *words: Any, timeout_s: float | None = None, **more: Any) -> list[Status]:
        with self._timed("batch_get", timeout_s):
            return super().batch_get(*words, timeout_s=timeout_s, **more)

    # A copy of a GPU cannot be stopped: a call that is given up waits for it, as long as for the
    # last write of a hanging daemon.
    def batch_set_device(
        self, *words: Any, timeout_s: float | None = None, **more: Any
    ) -> list[Status]:
        with self._timed("batch_set_device", timeout_s, SILENCE_TIMEOUT_S):
            return super().batch_set_device(*words, timeout_s=timeout_s, **more)

    def batch_get_device(
        self, *words: Any, timeout_s: float | None = None, **more: Any
    ) -> list[Status]:
        with self._timed("batch_get_device", timeout_s, SILENCE_TIMEOUT_S):
            return super().batch_get_device(*words, timeout_s=timeout_s, **more)

    def batch_exists(self, *words: Any, timeout_s: float | None = None, **more: Any) -> int:
        with self._timed("batch_exists", timeout_s):
            return super().batch_exists(*words, timeout_s=timeout_s, **more)

    def contains(self, *words: Any, timeout_s: float | None = None, **more: Any) -> list[bool]:
        with self._timed("contains", timeout_s):
            return super().contains(*words, timeout_s=timeout_s, **more)

    def remove(self, *words: Any, timeout_s: float | None = None, **more: Any) -> list[Status]:
        with self._timed("remove", timeout_s):
            return super().remove(*words, timeout_s=timeout_s, **more)

    def clear(self, *, timeout_s: float | None = None) -> bool:
        with self._timed("clear", timeout_s):
            return super().clear(timeout_s=timeout_s)

    def _timed(self, name: str, timeout_s: float | None, more_s: float = 0.0) -> Any:
        return self.calls.of(name, (self._usual_s if timeout_s is None else timeout_s) + more_s)
