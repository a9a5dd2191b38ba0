"""Members that send signs of life and answer nothing. Every removal would wait for them.

A heartbeat proves that its sender can send. It says nothing of the way to the sender: a firewall
may block its port, or the sender does not want to answer. So a master does not count the heartbeats
of a member that it has suspected for `mute_after_s`, and the failure detector goes on as if the
member were silent. It probes the member through others, too, and one answer keeps it in. A member
that is put out this way is let in again once it has answered the master.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from peercached.membership.timing import Timing
from peercached.membership.view import MEMBERS_MAX, NodeAddress


@dataclass(slots=True)
class _Case:
    address: NodeAddress
    since: float
    heard_at: float  # its last sign of life
    is_out: bool = False
    knocks: bool = False  # it asked to be let in since the last probe


class Mute:
    """The cases of one master. `suspected`: processes that fail to answer our calls. Not thread
    safe; `now` is monotonic seconds."""

    def __init__(self, timing: Timing, suspected: Container[NodeAddress]) -> None:
        self._timing = timing
        self._suspected = suspected
        self._cases: dict[str, _Case] = {}

    def is_mute(self, member: NodeAddress, now: float) -> bool:
        """A sign of life of a member has come. Whether it does not count."""
        case = self._cases.get(member.node_id)
        if member not in self._suspected:
            if case is not None:
                del self._cases[member.node_id]
            return False
        if case is None or not case.address.same_process(member):
            case = self._cases[member.node_id] = _Case(member, now, now)
        case.heard_at = now
        return now - case.since > self._timing.mute_after_s

    def died(self, node_id: str, now: float) -> bool:
        """A failure detector, ours or another master's, found it dead. Whether its signs of life
        still come."""
        case = self._cases.get(node_id)
        if case is None:
            return False
        # A process that was killed may have sent its last one after the first call that failed.
        ttl_s = self._timing.member_ttl_s
        case.is_out = now - case.heard_at < ttl_s < case.heard_at - case.since
        if not case.is_out:
            del self._cases[node_id]
        elif len(self._cases) > MEMBERS_MAX:
            del self._cases[next(iter(self._cases))]
        return case.is_out

    def is_out(self, address: NodeAddress) -> bool:
        case = self._cases.get(address.node_id)
        return case is not None and case.is_out and case.address.same_process(address)

    def knocks(self, address: NodeAddress, now: float) -> None:
        """A process that is out asks to be let in."""
        case = self._cases[address.node_id]
        case.knocks, case.heard_at = True, now

    def to_probe(self) -> list[NodeAddress]:
        """The processes that have knocked since the last call."""
        found = [case for case in self._cases.values() if case.knocks]
        for case in found:
            case.knocks = False
        return [case.address for case in found]

    def answers(self, node_id: str) -> None:
        """It has answered us, or another master that has let it in."""
        self._cases.pop(node_id, None)

    def out(self, now: float) -> list[NodeAddress]:
        """The nodes that are out and still send heartbeats."""
        since = now - self._timing.full_beat_s - self._timing.member_ttl_s
        return [c.address for c in self._cases.values() if c.is_out and c.heard_at > since]
