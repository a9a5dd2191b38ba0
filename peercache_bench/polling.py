"""How long to wait before a condition is looked at again.

Looking at a daemon's status takes 7 ms of processor time in all. Many tests wait at once, so what
has lasted for seconds is looked at less often. A wait is an eighth longer than it must be, at most.
"""

_FIRST_S = 0.02
_LONGEST_S = 0.25


def pause_s(waited_s: float) -> float:
    """The pause after `waited_s` in vain."""
    return min(max(_FIRST_S, waited_s / 8), _LONGEST_S)
