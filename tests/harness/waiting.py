"""Waits for a condition, never for a fixed time."""

import os
import time
from collections.abc import Callable
from typing import TypeVar

from harness.clock import now_s, seconds

T = TypeVar("T")

# A client's deadline in tests that are not about deadlines.
CALL_S = 20.0 if "RDMA_VM" in os.environ else seconds(10.0)


def eventually(
    condition: Callable[[], T], timeout_s: float = 10.0, what: str | Callable[[], str] = ""
) -> T:
    """The first true value of `condition()`. Fails with the last value and `what` after
    `timeout_s` seconds of the reference machine."""
    until = now_s() + seconds(timeout_s)
    while True:
        value = condition()
        if value:
            return value
        if now_s() > until:
            told = what() if callable(what) else what or repr(condition)
            raise AssertionError(
                f"not within {timeout_s:g} s: {told}; the last value was {value!r}"
            )
        time.sleep(0.02)
