"""How long a state has lasted, in a health sentence."""

from __future__ import annotations


def lasting(seconds: float) -> str:
    """` (for 40 s)`. Empty below a second: most events tell of a state that has just begun."""
    return f" (for {int(seconds)} s)" if seconds >= 1 else ""
