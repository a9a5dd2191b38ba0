"""Signs of life, which stand in for heartbeats that would say nothing new.

Nodes that follow each other's records exchange a message every second or two in any case
(native/transfer/tcp/life_signs.h), and each message says which view its sender knows. Two nodes
that know the same view have nothing else to tell each other than that they live. So:

- A member whose last heartbeat a master has accepted sends that master no other while the master's
  answers come with signs of the same view. It still sends one in `Timing.full_beat_s`, because a
  heartbeat also proves that the control planes reach each other.
- A master counts a sign of a member as it counts a heartbeat, if the member's last heartbeat is not
  older than that.

A sign with another view, another record of the sender or other namespace epochs means that there is
news: it counts for nothing, and the next heartbeat goes out as if there were no signs.
"""

from __future__ import annotations

from dataclasses import dataclass

NEVER = float("-inf")


@dataclass(frozen=True, slots=True)
class OwnSign:
    """What this node says of itself. View number 0: nothing."""

    view_number: int = 0
    sequence: int = 0
    in_office: bool = False


@dataclass(frozen=True, slots=True)
class Sign:
    """The last sign of one process. Times are monotonic seconds. `answered_at`: when the process
    last answered a question of ours, or NEVER."""

    incarnation: int
    view_number: int
    sequence: int
    in_office: bool
    at: float
    answered_at: float = NEVER
    same_epochs: bool = True  # as ours
