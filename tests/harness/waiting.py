"""Waits for a condition, never for a fixed time."""

import os
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from harness.clock import now_s, seconds
from peercache_bench.polling import pause_s

T = TypeVar("T")

_LOOK_EVERY_S = 0.05

# A client's deadline in tests that are not about deadlines.
CALL_S = 20.0 if "RDMA_VM" in os.environ else seconds(10.0)


def eventually(
    condition: Callable[[], T], timeout_s: float = 10.0, what: str | Callable[[], str] = ""
) -> T:
    """The first true value of `condition()`. Fails with the last value and `what` after
    `timeout_s` seconds of the reference machine."""
    began = now_s()
    while True:
        value = condition()
        if value:
            return value
        waited_s = now_s() - began
        if waited_s > seconds(timeout_s):
            told = what() if callable(what) else what or repr(condition)
            raise AssertionError(
                f"not within {timeout_s:g} s: {told}; the last value was {value!r}"
            )
        time.sleep(pause_s(waited_s))


def moments(length_s: float) -> Iterator[None]:
    """Yields again and again for so many seconds of this machine, with pauses: a test that judges
    all the time takes a processor from those beside it."""
    until = time.monotonic() + length_s
    while time.monotonic() < until:
        yield
        time.sleep(_LOOK_EVERY_S)
