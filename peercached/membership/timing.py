"""The times of membership, derived from the two that are configured."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timing:
    heartbeat_interval_s: float = 1.0
    member_ttl_s: float = 5.0

    @property
    def call_deadline_s(self) -> float:
        """Of one heartbeat. Far below the TTL: a head that accepts connections and never
        answers must not make its members look dead to the other heads."""
        return min(self.heartbeat_interval_s, self.member_ttl_s / 4)

    @property
    def retry_max_s(self) -> float:
        """Longest pause before a silent head is asked again. Within a third of the TTL, so
        that a head that came back has heard everybody before its grace is over."""
        return max(self.heartbeat_interval_s, self.member_ttl_s / 3)

    @property
    def replace_after_s(self) -> float:
        """Silence after which a node id may move to another address."""
        return 2 * self.heartbeat_interval_s
