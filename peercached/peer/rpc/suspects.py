"""The failure detector's state: which peers are suspect, and when to ping them.

A wrong suspicion costs a few misses. Waiting for a dead peer costs the engine its deadline. So one
failure makes a peer suspect, and one answered ping clears it. A peer that answers gRPC while its
data port is broken would flap between the two, so a relapse soon after doubles the ping backoff.
"""

from __future__ import annotations

from dataclasses import dataclass

from peercached.directory.placement import Node

PING_FIRST_S = 0.2
PING_MAX_S = 2.0
RELAPSE_S = 10.0


@dataclass(slots=True)
class _Case:
    node: Node
    since: float
    reason: str
    pause_s: float
    ping_at: float
    pinging: bool = False
    silent_at: float = float("inf")  # the last unanswered ping


class Suspects:
    """Sans-I/O; not thread safe; `now` is monotonic seconds."""

    def __init__(self) -> None:
        self._cases: dict[int, _Case] = {}
        self._cleared: dict[int, tuple[Node, float, float]] = {}  # node, when, last pause

    def suspect(self, node: Node, reason: str, now: float, answers: bool = False) -> bool:
        """False if it was suspect already. `answers`: the peer refused a request, so it lives, and
        the first ping is due at once (unless this is a relapse)."""
        if node.suspect:
            return False
        pause = PING_FIRST_S
        ping_at = now if answers else now + pause
        cleared = self._cleared.pop(node.index, None)
        if cleared is not None and cleared[0] is node and now - cleared[1] < RELAPSE_S:
            pause = min(2 * cleared[2], PING_MAX_S)
            ping_at = now + pause
        node.suspect = True
        self._cases[node.index] = _Case(node, now, reason, pause, ping_at)
        return True

    def due(self, now: float) -> list[Node]:
        """Nodes to ping now. Report each with answered(), silent() or forget()."""
        cases = [c for c in self._cases.values() if not c.pinging and now >= c.ping_at]
        for case in cases:
            case.pinging = True
        return [case.node for case in cases]

    def next_at(self) -> float:
        times = (c.ping_at for c in self._cases.values() if not c.pinging)
        return min(times, default=float("inf"))

    def answered(self, node: Node, now: float) -> bool:
        """The node answered a ping. False if it was not suspect."""
        case = self._cases.get(node.index)
        if case is None or case.node is not node:
            return False
        del self._cases[node.index]
        self._cleared[node.index] = (node, now, case.pause_s)
        node.suspect = False
        return True

    def silent(self, node: Node, now: float) -> None:
        case = self._cases.get(node.index)
        if case is not None and case.node is node:
            case.pinging = False
            case.silent_at = now
            case.pause_s = min(2 * case.pause_s, PING_MAX_S)
            case.ping_at = now + case.pause_s

    def calls(self, node: Node) -> bool:
        """A node that left a ping unanswered calls us, so it is most likely reachable again. True
        if its next ping is sooner now."""
        case = self._cases.get(node.index)
        if case is None or case.node is not node or case.pinging:
            return False
        soon = case.silent_at + PING_FIRST_S  # frequent calls must not cause frequent pings
        sooner = soon < case.ping_at
        case.ping_at = min(case.ping_at, soon)
        return sooner

    def forget(self, node: Node) -> None:
        """The node left the view."""
        self._cases.pop(node.index, None)
        self._cleared.pop(node.index, None)

    def reasons(self) -> list[tuple[Node, str, float]]:
        """(node, why, since when)"""
        return [(c.node, c.reason, c.since) for c in self._cases.values()]
