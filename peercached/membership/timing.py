"""The times of membership, derived from the two that are configured."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timing:
    heartbeat_interval_s: float = 1.0
    member_ttl_s: float = 5.0

    @property
    def call_deadline_s(self) -> float:
        """Of one heartbeat or probe. Far below the TTL: a master that accepts connections and
        never answers must not make its members look dead to the other masters."""
        return min(self.heartbeat_interval_s, self.member_ttl_s / 4)

    @property
    def etcd_deadline_s(self) -> float:
        """Of one call to etcd, which writes to its disk before it answers."""
        return max(1.0, self.member_ttl_s / 4)

    @property
    def lease_over_s(self) -> float:
        """Silence after which etcd has ended a lease: some time after its TTL, and never sooner
        than its election takes."""
        return self.member_ttl_s + 3.0

    @property
    def retry_max_s(self) -> float:
        """Longest pause before a silent master is asked again."""
        return max(self.heartbeat_interval_s, self.member_ttl_s / 3)

    @property
    def replace_after_s(self) -> float:
        """Silence after which a node id may move to another address: two heartbeats, or two signs
        of life."""
        return 2 * max(self.heartbeat_interval_s, self.sign_wait_s)

    @property
    def suspect_after_s(self) -> float:
        """Silence after which a member is probed, so that a dead one has been asked in vain by
        the time its TTL is over. At least 1.8 heartbeats: one may be lost."""
        return 0.6 * self.member_ttl_s

    @property
    def sign_wait_s(self) -> float:
        """Signs of life (signs.py) come that often where nothing happens: twice, at least, before a
        member that gives none is suspected."""
        return min(2.0, self.suspect_after_s / 2)

    @property
    def sign_fresh_s(self) -> float:
        """So long a sign stands in for heartbeats."""
        return 1.5 * self.sign_wait_s

    @property
    def full_beat_s(self) -> float:
        """After that a heartbeat is sent although there are signs of life."""
        return 2 * self.member_ttl_s

    @property
    def takeover_after_s(self) -> float:
        """Silence of all masters after which the next nodes in order act as masters. They give the
        others another TTL: a part of a network without masters is whole again after two."""
        return self.member_ttl_s

    @property
    def takeover_again_s(self) -> float:
        """From then on until as many more do: the first have made their view then, if they can."""
        return 3 * self.member_ttl_s

    @property
    def remember_gone_s(self) -> float:
        """How long it is known that a member is gone. Longer than any message is under way."""
        return 20 * self.member_ttl_s

    @property
    def recovery_wait_s(self) -> float:
        """How long a start waits for those who know what was removed meanwhile, before it goes on
        without the pages of earlier starts: nodes that start together come within that."""
        return 2 * self.member_ttl_s

    @property
    def pause_s(self) -> float:
        """A node that finds itself stopped for longer (SIGSTOP, a suspended virtual machine)
        blames nobody for the silence in between."""
        return max(1.5 * self.heartbeat_interval_s, 0.5 * self.suspect_after_s)

    @property
    def flap_half_life_s(self) -> float:
        """A quarter of an hour by default, as routers have it."""
        return 180 * self.member_ttl_s

    @property
    def flap_wait_max_s(self) -> float:
        """Above twice the 47 TTL of the slowest that flaps with regularity (flapping.py)."""
        return 120 * self.member_ttl_s
