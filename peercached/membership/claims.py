"""Decides which process keeps a node id: after a restart, a move, or a copied configuration."""

from __future__ import annotations

from dataclasses import dataclass

from peercached.membership.timing import Timing
from peercached.membership.view import MEMBERS_MAX, Member, NodeAddress, Verdict


@dataclass(slots=True)
class _Claim:
    incarnation: int
    since: float


class Claims:
    """Claims that reach a master. Not thread safe; `now` is monotonic seconds."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._claims: dict[str, _Claim] = {}

    def judge(
        self, sender: NodeAddress, first: NodeAddress, heard: float, now: float
    ) -> tuple[Verdict, str]:
        """Verdict on `sender`, and the reason unless it is ACCEPTED. `first` is the current member
        with the same node id but another process. It was last heard at `heard`."""
        # Another endpoint: the node moved, or a second one has a copied configuration. The same
        # endpoint but a lower incarnation: a late message of an older start, or a clock that was
        # set back. Only silence of `first` tells these apart. Another key: a restart that lost its
        # state_dir, or an impostor. That one waits until `first` is removed.
        silent = sender.key == first.key and now - heard >= self._timing.replace_after_s
        if silent or _restarted(first, sender):
            self._claims.pop(sender.node_id, None)
            return Verdict.ACCEPTED, ""
        claim = self._claims.get(sender.node_id)
        if claim is None or claim.incarnation != sender.incarnation:
            if len(self._claims) >= MEMBERS_MAX:
                self._claims.clear()  # claims still active start their wait anew
            claim = self._claims[sender.node_id] = _Claim(sender.incarnation, now)
        if heard > claim.since:
            return Verdict.DUPLICATE, taken(sender, first)
        return (
            Verdict.WAIT,
            f"node id {sender.node_id!r} was just alive at {first.endpoint}: "
            "waiting to see whether it still is",
        )


class EtcdClaim:
    """This node's claim in etcd. `now` is monotonic seconds."""

    def __init__(self, own: NodeAddress, timing: Timing) -> None:
        self._own = own
        self._timing = timing
        self._claimed: tuple[NodeAddress, float] | None = None

    def judge(self, other: Member | None, now: float) -> Verdict:
        """Whether this node may write its key. `other` is the member in the key now, None if there
        is no key. ACCEPTED: no other process has the key, or an older start of this node has it.
        WAIT: another process has it, but may be dead, and its lease may still end. DUPLICATE: that
        process has had the key for longer than a dead one's lease."""
        if (
            other is None
            or other.address.same_process(self._own)
            or _restarted(other.address, self._own)
        ):
            self._claimed = None
            return Verdict.ACCEPTED
        if self._claimed is None or not self._claimed[0].same_process(other.address):
            self._claimed = (other.address, now)
        over = now - self._claimed[1] > self._timing.lease_over_s
        return Verdict.DUPLICATE if over else Verdict.WAIT


def _restarted(first: NodeAddress, second: NodeAddress) -> bool:
    """Only one process can listen at an endpoint, so the older start is gone."""
    return (
        first.endpoint == second.endpoint
        and first.incarnation < second.incarnation
        and first.key == second.key
    )


def taken(sender: NodeAddress, first: NodeAddress) -> str:
    return (
        f"node id {sender.node_id!r} is already used by the daemon at {first.endpoint} "
        f"(incarnation {first.incarnation}): give this one another node_id, or stop that one"
    )
