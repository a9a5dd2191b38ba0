"""The failure detector's state: which peers are suspect, and when to ping them.

A wrong suspicion costs a few misses. Waiting for a dead peer costs the engine its deadline. So one
failure makes a peer suspect, and one proof clears it: an answered ping, and if its pages did not
come, then also a proof of the way that they take. A peer that fails soon again doubles the ping
backoff.
"""

from __future__ import annotations

from dataclasses import dataclass

from peercached.directory.placement import Node
from peercached.membership.suspected import Suspected

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
    of_pages: bool  # its pages did not come
    pinging: bool = False
    lives: bool = False  # it answered the last ping
    silent_at: float = float("inf")  # the last unanswered ping


class Suspects:
    """Sans-I/O; not thread safe; `now` is monotonic seconds."""

    def __init__(self) -> None:
        self._cases: dict[int, _Case] = {}
        self.processes = Suspected()
        self._cleared: dict[int, tuple[Node, float, float]] = {}  # node, when, last pause

    def suspect(
        self, node: Node, reason: str, now: float, answers: bool = False, of_pages: bool = False
    ) -> bool:
        """False if it was suspect already. `answers`: the peer refused a request, so it lives, and
        the first ping is due at once (unless this is a relapse). `of_pages`: its pages did not
        come."""
        if node.suspect:
            known = self._cases.get(node.index)
            if known is not None and known.node is node:
                known.of_pages |= of_pages
            return False
        pause = PING_FIRST_S
        ping_at = now if answers else now + pause
        cleared = self._cleared.pop(node.index, None)
        if cleared is not None and cleared[0] is node and now - cleared[1] < RELAPSE_S:
            pause = min(2 * cleared[2], PING_MAX_S)
            ping_at = now + pause
        node.suspect = True
        self.processes.add(node.address)
        self._cases[node.index] = _Case(node, now, reason, pause, ping_at, of_pages)
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

    def answered(self, node: Node, now: float, pages_can_come: bool = False) -> bool:
        """The node answered a ping. False if it was not suspect, or if it still is, because it
        also has to be proved that pages can come from it."""
        case = self._cases.get(node.index)
        if case is None or case.node is not node:
            return False
        if case.of_pages and not pages_can_come:
            case.lives = True
            return False
        del self._cases[node.index]
        self._cleared[node.index] = (node, now, case.pause_s)
        node.suspect = False
        self.processes.discard(node.address)
        return True

    def wants_proof(self, node: Node) -> bool:
        """It answered the last ping, and pages of it did not come."""
        case = self._cases.get(node.index)
        return case is not None and case.node is node and case.lives

    def silent(self, node: Node, now: float, lives: bool = False) -> None:
        """No answer. `lives`: to the ping there was one, but pages cannot come."""
        case = self._cases.get(node.index)
        if case is not None and case.node is node:
            case.pinging = False
            case.lives = lives
            case.silent_at = float("inf") if lives else now
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
        self.processes.discard(node.address)
        self._cases.pop(node.index, None)
        self._cleared.pop(node.index, None)

    def reasons(self) -> list[tuple[Node, str, float, bool]]:
        """(node, why, since when, whether it answers pings)"""
        return [(c.node, c.reason, c.since, c.lives) for c in self._cases.values()]
