"""Signs of life, which stand in for heartbeats that would say nothing new.

Nodes that follow each other's records exchange a message every second or two in any case
(native/transfer/tcp/life_signs.h). Each message says which view its sender knows. Two nodes with
the same view can tell each other only that they are alive. So:

- A member sends no heartbeat to a master that accepted its last one, while that master's answers
  carry signs of the same view. It still sends one every `Timing.full_beat_s`, because only a
  heartbeat proves that the control planes reach each other.
- A master counts a member's sign like a heartbeat. But the member's last heartbeat must be at most
  that old.

A sign with another view, another record of its sender or other namespace epochs means news. It does
not count, and the next heartbeat goes out as if there were no signs.
"""

from __future__ import annotations

from dataclasses import dataclass

NEVER = float("-inf")


@dataclass(frozen=True, slots=True)
class OwnSign:
    """The sign that this node sends. View number 0: it sends none."""

    view_number: int = 0
    sequence: int = 0
    is_master: bool = False


@dataclass(frozen=True, slots=True)
class Sign:
    """The last sign of life from one process. Times are monotonic seconds. `answered_at`: when the
    process last answered a question of ours, or NEVER."""

    incarnation: int
    view_number: int
    sequence: int
    is_master: bool
    at: float
    answered_at: float = NEVER
    same_epochs: bool = True  # its namespace epochs are ours
