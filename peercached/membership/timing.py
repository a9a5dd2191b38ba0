"""The times of membership, derived from the two configured ones. All are in seconds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timing:
    heartbeat_interval_s: float = 1.0
    member_ttl_s: float = 5.0

    @property
    def call_deadline_s(self) -> float:
        """Deadline of one heartbeat or probe. Far below the TTL: a master that accepts connections
        but never answers must not make its members look dead to the other masters."""
        return min(self.heartbeat_interval_s, self.member_ttl_s / 4)

    @property
    def etcd_deadline_s(self) -> float:
        """Deadline of one call to etcd, which writes to its disk before it answers."""
        return max(1.0, self.member_ttl_s / 4)

    @property
    def lease_over_s(self) -> float:
        """After so long a silence, etcd has surely ended a lease. It does so some time after the
        TTL, and never sooner than its election takes."""
        return self.member_ttl_s + 3.0

    @property
    def retry_max_s(self) -> float:
        """Longest backoff before a heartbeat to a silent master is retried."""
        return max(self.heartbeat_interval_s, self.member_ttl_s / 3)

    @property
    def replace_after_s(self) -> float:
        """After so long a silence, another address may take over a node id: two heartbeats, or two
        signs of life."""
        return 2 * max(self.heartbeat_interval_s, self.sign_wait_s)

    @property
    def suspect_after_s(self) -> float:
        """After so long a silence, a master probes a member. Early enough that the probes have
        failed by the time the TTL is over. At least 1.8 heartbeats: one may be lost."""
        return 0.6 * self.member_ttl_s

    @property
    def mute_after_s(self) -> float:
        """How long heartbeats count of a member that does not answer our calls (mute.py). Longer
        than a busy daemon takes to answer a ping."""
        return 3 * self.member_ttl_s

    @property
    def trust_s(self) -> float:
        """So long after a heartbeat, a master says without a ping that its sender lives. Another
        master that heard the same heartbeat would not even suspect it yet."""
        return 0.5 * self.suspect_after_s

    @property
    def sign_wait_s(self) -> float:
        """Interval of signs of life (signs.py) without other traffic. At least two must be missing
        before a member is suspected."""
        return min(2.0, self.suspect_after_s / 2)

    @property
    def sign_fresh_s(self) -> float:
        """How long one sign stands in for heartbeats."""
        return 1.5 * self.sign_wait_s

    @property
    def full_beat_s(self) -> float:
        """Longest interval between heartbeats, whatever the signs of life."""
        return 2 * self.member_ttl_s

    @property
    def takeover_after_s(self) -> float:
        """After so long a silence of all masters, the next nodes in order take over. They give the
        members another TTL. So a partition without masters has a new view after two TTLs."""
        return self.member_ttl_s

    @property
    def takeover_again_s(self) -> float:
        """Interval until the same number takes over again. The first ones had time for a view."""
        return 3 * self.member_ttl_s

    @property
    def remember_gone_s(self) -> float:
        """How long tombstones are kept. Longer than any message can be in flight."""
        return 20 * self.member_ttl_s

    @property
    def recovery_wait_s(self) -> float:
        """How long a start waits for nodes that know which pages were removed meanwhile. Then it
        goes on without the pages of earlier starts. Nodes that start together meet within this."""
        return 2 * self.member_ttl_s

    @property
    def pause_s(self) -> float:
        """A longer gap in our own clock means that we were stopped (SIGSTOP, a suspended virtual
        machine). Then we do not count the gap as silence of others."""
        return max(1.5 * self.heartbeat_interval_s, 0.5 * self.suspect_after_s)

    def view_spacing_s(self, members: int) -> float:
        """Least time between two views of one master. Joins that come together make one view: each
        view costs every member a new ring and a resync. So masters collect changes for longer in a
        larger cluster."""
        return 0.05 + 0.0005 * members

    @property
    def flap_half_life_s(self) -> float:
        """Half-life of a join's weight (flapping.py): half an hour by default."""
        return 360 * self.member_ttl_s

    @property
    def flap_wait_max_s(self) -> float:
        """Bound of a flapping node's wait. The slowest regular flapper joins every 80 TTL, and must
        not outlast its wait (flapping.py)."""
        return 120 * self.member_ttl_s
