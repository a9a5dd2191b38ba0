"""What one head knows: whom it heard, when, and whether a newcomer may have its node id."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from peercached.membership.timing import Timing
from peercached.membership.view import NodeAddress, Verdict

# Holder indices are 16 bits, and the table of a head must not grow without bound.
MEMBERS_MAX = 4096


@dataclass(slots=True)
class _Contender:
    """Another process that wants the node id of a member at another address."""

    incarnation: int
    since: float


@dataclass(slots=True)
class _Entry:
    address: NodeAddress
    heard: float
    contender: _Contender | None = None


class HeadTable:
    """Members by node id. Not thread safe; `now` is monotonic seconds."""

    def __init__(self, self_address: NodeAddress, timing: Timing) -> None:
        self._self = self_address
        self._timing = timing
        self._entries: dict[str, _Entry] = {}

    def heard(self, sender: NodeAddress, now: float) -> tuple[Verdict, str]:
        """The verdict on a heartbeat of `sender`, and the reason when it is not ACCEPTED."""
        if sender.node_id == self._self.node_id:
            return Verdict.DUPLICATE, _taken(sender, self._self)
        entry = self._entries.get(sender.node_id)
        if entry is None:
            if len(self._entries) >= MEMBERS_MAX:
                return Verdict.WAIT, f"the cluster has its maximum of {MEMBERS_MAX} members"
            self._entries[sender.node_id] = _Entry(sender, now)
            return Verdict.ACCEPTED, ""
        if entry.address.incarnation == sender.incarnation:
            entry.address = sender
            entry.heard = now
            return Verdict.ACCEPTED, ""
        if (
            entry.address.endpoint == sender.endpoint
            and sender.incarnation > entry.address.incarnation
        ):
            # Only one process can listen there, so the older start is gone.
            self._entries[sender.node_id] = _Entry(sender, now)
            return Verdict.ACCEPTED, ""
        return self._contend(entry, sender, now)

    def _contend(self, entry: _Entry, sender: NodeAddress, now: float) -> tuple[Verdict, str]:
        # Elsewhere: a node that moved, or a second one with a copied configuration. The same
        # place but a lower number: a late message of an older start, or a clock that was set
        # back. Only the silence of the first tells them apart.
        if now - entry.heard >= self._timing.replace_after_s:
            self._entries[sender.node_id] = _Entry(sender, now)
            return Verdict.ACCEPTED, ""
        contender = entry.contender
        if contender is None or contender.incarnation != sender.incarnation:
            contender = entry.contender = _Contender(sender.incarnation, now)
        if entry.heard > contender.since:
            return Verdict.DUPLICATE, _taken(sender, entry.address)
        return (
            Verdict.WAIT,
            f"node id {sender.node_id!r} was just alive at {entry.address.endpoint}: "
            "waiting to see whether it still is",
        )

    def left(self, node_id: str, incarnation: int) -> bool:
        entry = self._entries.get(node_id)
        if entry is None or entry.address.incarnation != incarnation:
            return False
        del self._entries[node_id]
        return True

    def seed(self, members: Iterable[NodeAddress], now: float) -> None:
        """Members known from another head's view count as heard now, so that this head gives
        them a whole TTL before it throws them out."""
        for member in members:
            if member.node_id != self._self.node_id and len(self._entries) < MEMBERS_MAX:
                self._entries.setdefault(member.node_id, _Entry(member, now))

    def living(self, now: float) -> list[NodeAddress]:
        """Everybody heard within the TTL, and this head; the others are forgotten."""
        oldest = now - self._timing.member_ttl_s
        for node_id in [n for n, entry in self._entries.items() if entry.heard < oldest]:
            del self._entries[node_id]
        return [self._self, *(entry.address for entry in self._entries.values())]

    def next_expiry(self) -> float:
        """When the first member will have been silent for a TTL."""
        heard = min((entry.heard for entry in self._entries.values()), default=float("inf"))
        return heard + self._timing.member_ttl_s

    def silence_s(self, now: float) -> dict[str, float]:
        return {node_id: now - entry.heard for node_id, entry in self._entries.items()}


def _taken(sender: NodeAddress, first: NodeAddress) -> str:
    return (
        f"node id {sender.node_id!r} is already used by the daemon at {first.endpoint} "
        f"(incarnation {first.incarnation}): give this one another node_id, or stop that one"
    )
