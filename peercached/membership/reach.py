"""Limits how far peers may raise view counters and sequences.

These numbers only grow, and a node adopts the highest that it hears of. So one message with the
largest possible number would leave none for the next view, on all nodes and for ever. Therefore we
believe a number only within reach of our own. An honest peer is ahead of us only by the changes
that we missed.
"""

from __future__ import annotations

from peercached.membership.view import MARK_BITS, VIEW_NUMBER_MAX

# Views that others may have made without us: always believed.
STEP = 1 << 10
# Believed once in a TTL: enough for a year cut off while others made a view every 30 s.
LEAP = 1 << 20
# A node without a view believes counters up to half of all, from any peer. From a master that it
# asked, it believes nearly all. So a cluster still takes new nodes after a peer raised its counters
# by half while it began.
FIRST_MAX = (VIEW_NUMBER_MAX >> MARK_BITS) // 2
FIRST_ASKED_MAX = (VIEW_NUMBER_MAX >> MARK_BITS) - 2 * LEAP

SEQUENCE_STEP = 1 << 32
SEQUENCE_FIRST_MAX = 1 << 61


class ViewReach:
    """Not thread safe; `now` is monotonic seconds."""

    def __init__(self, leap_every_s: float, remembered: int = 0) -> None:
        # The highest believed number that any node mentioned. A remembered one out of reach is a
        # lie: no cluster ever makes that many views.
        self.told = remembered if remembered >> MARK_BITS <= FIRST_ASKED_MAX else 0
        self.told_at = float("-inf")  # when it exceeded the known view's
        self._leap_every_s = leap_every_s
        self._leapt_at = float("-inf")
        self._leapt_to = 0
        self.refused = 0  # numbers refused since start
        self.refused_at = float("-inf")  # time of the last refusal

    def has(self, number: int, known: int, now: float, asked: bool = False) -> bool:
        """Whether a node with view `known` (0: none) may believe that view `number` exists.
        `asked`: the number comes in an answer to us. Counts refusals."""
        if number <= known:
            return True
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

    def hear_of(self, number: int, known: int, now: float) -> None:
        # Measured from `known`, not from `told`: that may come from an old state_dir.
        if number > self.told and self.has(number, known, now):
            if self.told <= known:
                self.told_at = now
            self.told = number

    def refuse(self, now: float) -> None:
        """Counts a number that was out of reach."""
        self.refused += 1
        self.refused_at = now

    def _may_leap(self, now: float) -> bool:
        return now - self._leapt_at >= self._leap_every_s


def sequence_within_reach(sequence: int, known: int) -> bool:
    """Whether to believe `sequence`. `known`: the newest one of that node id; below 0: none."""
    if known < 0:
        return sequence <= SEQUENCE_FIRST_MAX
    return sequence <= known + SEQUENCE_STEP
