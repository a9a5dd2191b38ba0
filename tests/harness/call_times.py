"""How long a worker's calls take, and how far beyond their deadlines; not the machine's part."""

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

# Over a call's own deadline. A tenth of a second of it is the client's, for a reply that is on its
# way. In a VM of tests/rdma the processor itself is emulated or late: there is nothing to judge.
SLACK_S = math.inf if "RDMA_VM" in os.environ else seconds(0.3)


class CallTimes:
    """Of one client, net of the machine's lateness. Thread safe."""

    def __init__(self, slack_s: float = SLACK_S) -> None:
        self.longest_s = 0.0
        self._longest_part = 0.0
        self._slack_s = slack_s
        self.too_late: list[str] = []
        self._lock = threading.Lock()

    def forget_longest(self) -> None:
        """The calls from now on."""
        self.longest_s = self._longest_part = 0.0

    @contextmanager
    def of(self, name: str, deadline_s: float) -> Iterator[None]:
        """The call within this block."""
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
        """AssertionError if a call may have waited for somebody who did not answer. Such a call
        waits until its deadline (or until `rpc_timeout_ms`, which has to be longer), so that half
        of it tells one from the other, also on a machine that is starved for a second."""
        assert self._longest_part < 0.5, (
            f"a call waited for somebody: {self._longest_part:.0%} of its deadline"
        )

    def check(self) -> None:
        """AssertionError if a call of this client exceeded its deadline."""
        assert not self.too_late, "; ".join(self.too_late)


class TimedClient(Client):
    """A client whose calls are measured, each against its own deadline."""

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

    def _timed(self, name: str, timeout_s: float | None) -> Any:
        return self.calls.of(name, self._usual_s if timeout_s is None else timeout_s)
