"""Decides which process keeps a node id: after a restart, a move, or a copied configuration."""

from __future__ import annotations

from dataclasses import dataclass

from peercached.membership.timing import Timing
from peercached.membership.view import MEMBERS_MAX, NodeAddress, Verdict


@dataclass(slots=True)
class _Claim:
    incarnation: int
    since: float


class Claims:
    """Not thread safe; `now` is monotonic seconds."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._claims: dict[str, _Claim] = {}

    def judge(
        self, sender: NodeAddress, first: NodeAddress, heard: float, now: float
    ) -> tuple[Verdict, str]:
        """Verdict on `sender`, and the reason unless it is ACCEPTED. `first` is the current member
        with the same node id but another process. It was last heard at `heard`."""
        if (
            first.endpoint == sender.endpoint
            and sender.incarnation > first.incarnation
            and sender.key == first.key
        ):
            # Only one process can listen at an endpoint, so the older start is gone.
            return self._granted(sender)
        # Another endpoint: the node moved, or a second one has a copied configuration. The same
        # endpoint but a lower incarnation: a late message of an older start, or a clock that was
        # set back. Only silence of `first` tells these apart. Another key: a restart that lost its
        # state_dir, or an impostor. That one waits until `first` is removed.
        if sender.key == first.key and now - heard >= self._timing.replace_after_s:
            return self._granted(sender)
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

    def _granted(self, sender: NodeAddress) -> tuple[Verdict, str]:
        self._claims.pop(sender.node_id, None)
        return Verdict.ACCEPTED, ""


def taken(sender: NodeAddress, first: NodeAddress) -> str:
    return (
        f"node id {sender.node_id!r} is already used by the daemon at {first.endpoint} "
        f"(incarnation {first.incarnation}): give this one another node_id, or stop that one"
    )
