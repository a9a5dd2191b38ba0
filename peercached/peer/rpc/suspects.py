"""Who is suspect, and when it is asked whether it lives.

Suspicion costs a peer's pages a few misses; waiting for a dead peer costs the engine its
deadline. So one sign is enough to suspect, and one answered ping to trust again. But a peer
whose gRPC answers while its data port does not would be trusted and suspected in turn; so
whoever is suspected again soon after is asked later each time.
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
    silent_at: float = float("inf")  # when a ping was in vain, lately


class Suspects:
    """Sans-I/O; not thread safe; `now` is monotonic seconds."""

    def __init__(self) -> None:
        self._cases: dict[int, _Case] = {}
        self._cleared: dict[int, tuple[Node, float, float]] = {}  # node, when, last pause

    def suspect(self, node: Node, reason: str, now: float, answers: bool = False) -> bool:
        """True if it was not suspect before. `answers`: it has refused something, so it lives, and
        a ping is worth while at once."""
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
        """Whom to ping now; each must be followed by answered(), silent() or forget()."""
        cases = [c for c in self._cases.values() if not c.pinging and now >= c.ping_at]
        for case in cases:
            case.pinging = True
        return [case.node for case in cases]

    def next_at(self) -> float:
        times = (c.ping_at for c in self._cases.values() if not c.pinging)
        return min(times, default=float("inf"))

    def answered(self, node: Node, now: float) -> bool:
        """True if it was suspect and is not any more."""
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
        """It did not answer a ping, and calls us now: it can be reached again, most likely. True if
        it is asked sooner for that."""
        case = self._cases.get(node.index)
        if case is None or case.node is not node or case.pinging:
            return False
        soon = case.silent_at + PING_FIRST_S  # however often it calls
        sooner = soon < case.ping_at
        case.ping_at = min(case.ping_at, soon)
        return sooner

    def forget(self, node: Node) -> None:
        """It is out of the view."""
        self._cases.pop(node.index, None)
        self._cleared.pop(node.index, None)

    def reasons(self) -> list[tuple[Node, str, float]]:
        """(node, why, since when)"""
        return [(c.node, c.reason, c.since) for c in self._cases.values()]
