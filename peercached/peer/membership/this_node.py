"""The identity of this node at this start: its incarnation."""

from __future__ import annotations

import secrets
import time


def new_incarnation() -> int:
    """Grows from start to start by the wall clock; the random bits keep two starts apart
    that read the same time. Never 0, and within 63 bits."""
    return (time.time_ns() >> 10 << 10 | secrets.randbits(10)) & (2**63 - 1) or 1
