"""Two processes with one node id: a restart, a node that moved, or a copied configuration."""

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
        """`first`: the member with that id, another process, last heard at `heard`."""
        if (
            first.endpoint == sender.endpoint
            and sender.incarnation > first.incarnation
            and sender.key == first.key
        ):
            # Only one process can listen there, so the older start is gone.
            return self._granted(sender)
        # Elsewhere: a node that moved, or a second one with a copied configuration. The same
        # place but a lower number: a late message of an older start, or a clock that was set
        # back. Only the silence of the first tells them apart. With another key, a start without
        # the state of the first or somebody who only says where he is, it waits for its end.
        if sender.key == first.key and now - heard >= self._timing.replace_after_s:
            return self._granted(sender)
        claim = self._claims.get(sender.node_id)
        if claim is None or claim.incarnation != sender.incarnation:
            if len(self._claims) >= MEMBERS_MAX:
                self._claims.clear()  # whoever still claims begins to wait anew
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
