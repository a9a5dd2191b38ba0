"""Waiting for a condition, never for a time."""

import os
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

# Where tests/rdma/vm emulates every instruction, what is bound to come takes longer.
PATIENCE = 10 if os.environ.get("RDMA_VM") == "qemu" else 1
# A client's deadline where that is not the point. In any VM a set of some MiB takes a second.
CALL_S = 20.0 if "RDMA_VM" in os.environ else 2.0


def eventually(condition: Callable[[], T], timeout_s: float = 10.0, what: str = "") -> T:
    """The first true value of `condition()`. Fails, with the last value, after `timeout_s`
    (PATIENCE times that)."""
    timeout_s *= PATIENCE
    until = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > until:
            raise AssertionError(
                f"not within {timeout_s:g} s: {what or condition}; the last value was {value!r}"
            )
        time.sleep(0.02)
