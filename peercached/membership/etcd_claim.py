"""Resolves duplicate node-id claims in etcd."""

from __future__ import annotations

from peercached.membership.timing import Timing
from peercached.membership.view import Member, NodeAddress, Verdict


class EtcdClaim:
    """`now` is monotonic seconds."""

    def __init__(self, own: NodeAddress, timing: Timing) -> None:
        self._own = own
        self._timing = timing
        self._claimed: tuple[NodeAddress, float] | None = None

    def judge(self, other: Member | None, now: float) -> Verdict:
        """Whether this node may write its key. `other` is the member in the key now, None if there
        is no key. ACCEPTED: no other process has the key, or an older start of this node has it.
        WAIT: another process has it, but may be dead, and its lease may still end. DUPLICATE: that
        process has had the key for longer than a dead one's lease."""
        if other is None or other.address.same_process(self._own) or self._is_older(other.address):
            self._claimed = None
            return Verdict.ACCEPTED
        if self._claimed is None or not self._claimed[0].same_process(other.address):
            self._claimed = (other.address, now)
        over = now - self._claimed[1] > self._timing.lease_over_s
        return Verdict.DUPLICATE if over else Verdict.WAIT

    def _is_older(self, other: NodeAddress) -> bool:
        own = self._own
        return (
            other.endpoint == own.endpoint
            and other.incarnation < own.incarnation
            and other.key == own.key
        )
