"""How long a silent member has before it is dead: a failure detector that learns.

No fixed time suits a busy machine. A process that was found dead and is a member again has not
died, so the time was too short for it: from then on its node has twice as long, and eight times at
most (Chandra and Toueg 1996: an eventually perfect detector). This is forgotten in time.
"""

from __future__ import annotations

import math

from peercached.membership.timing import Timing
from peercached.membership.view import MEMBERS_MAX

DOUBLINGS_MAX = 3.0


class Patience:
    """Wrong deaths by node id. The weight of each halves every `flap_half_life_s`. Not thread safe;
    `now` is monotonic seconds."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._wrong: dict[str, tuple[float, float]] = {}  # weight, and when it had that weight

    def times(self, node_id: str, now: float) -> float:
        """The factor for this node's TTL: 1 to 8."""
        return math.pow(2.0, self._weight(node_id, now)) if node_id in self._wrong else 1.0

    def _weight(self, node_id: str, now: float) -> float:
        weight, at = self._wrong.get(node_id, (0.0, now))
        return weight * math.pow(2.0, (at - now) / self._timing.flap_half_life_s)

    def was_short(self, node_id: str, now: float) -> bool:
        """A process that was found dead is a member again. False if its node has the longest time
        already: then the node is at fault."""
        weight = self._weight(node_id, now)
        if weight > DOUBLINGS_MAX - 1:
            return False
        self._wrong.pop(node_id, None)
        self._wrong[node_id] = (weight + 1, now)
        if len(self._wrong) > MEMBERS_MAX:
            del self._wrong[next(iter(self._wrong))]
        return True
