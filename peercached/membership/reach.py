"""How far others may raise the numbers that this node counts with.

View counters and sequences only grow, and a node goes by the highest that it hears of. So one
message with the largest possible number would leave no number for the next view, on all nodes and
for ever. Therefore we believe a number only if it is within reach of the number we know: an honest
peer is ahead of us by the changes that we missed, and no further.
"""

from __future__ import annotations

from peercached.membership.view import MARK_BITS, VIEW_NUMBER_MAX

# Views that others may have made without us, at any time.
STEP = 1 << 10
# And once in a TTL: a node that was cut off for a year while a view was made every 30 s.
LEAP = 1 << 20
# A node that knows no view yet takes one from whoever tells it, up to half of all counters; from
# a master that it has asked itself, nearly all of them. So a cluster whose counters were raised by
# half while it began still takes new nodes.
FIRST_MAX = (VIEW_NUMBER_MAX >> MARK_BITS) // 2
FIRST_ASKED_MAX = (VIEW_NUMBER_MAX >> MARK_BITS) - 2 * LEAP

SEQUENCE_STEP = 1 << 32
SEQUENCE_FIRST_MAX = 1 << 61


class ViewReach:
    """Not thread safe; `now` is monotonic seconds."""

    def __init__(self, leap_every_s: float) -> None:
        self._leap_every_s = leap_every_s
        self._leapt_at = float("-inf")
        self._leapt_to = 0
        self.refused = 0  # numbers, since start
        self.refused_at = float("-inf")  # the last of them

    def has(self, number: int, known: int, now: float, asked: bool = False) -> bool:
        """Whether that view may exist, for a node that has the view `known` (0: none). `asked`: it
        comes in an answer to us."""
        counter, known_counter = number >> MARK_BITS, known >> MARK_BITS
        if number >= VIEW_NUMBER_MAX:
            reached = False
        elif known_counter == 0:
            reached = counter <= (FIRST_ASKED_MAX if asked else FIRST_MAX)
        elif counter <= max(known_counter, self._leapt_to) + STEP:
            reached = True
        else:
            reached = counter <= known_counter + LEAP and self._may_leap(now)
            if reached:
                self._leapt_at, self._leapt_to = now, counter
        if not reached:
            self.refuse(now)
        return reached

    def refuse(self, now: float) -> None:
        """Counts a number that was out of reach."""
        self.refused += 1
        self.refused_at = now

    def _may_leap(self, now: float) -> bool:
        return now - self._leapt_at >= self._leap_every_s


def sequence_within_reach(sequence: int, known: int) -> bool:
    """`known`: the newest of that node id; below 0: none."""
    if known < 0:
        return sequence <= SEQUENCE_FIRST_MAX
    return sequence <= known + SEQUENCE_STEP
