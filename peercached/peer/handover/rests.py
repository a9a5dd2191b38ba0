"""Peers that are left alone for a while, longer after each failure in a row."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from peercached.directory.placement import Node

REST_FIRST_S = 1.0


@dataclass(slots=True)
class _Rest:
    until: float  # monotonic seconds
    pause_s: float


class Rests:
    """`now` is monotonic seconds. A rest doubles up to `max_s`."""

    def __init__(self, max_s: float) -> None:
        self._max_s = max_s
        self._rests: dict[Node, _Rest] = {}

    def is_awake(self, node: Node, now: float) -> bool:
        rest = self._rests.get(node)
        return rest is None or now >= rest.until

    def rest(self, node: Node, now: float) -> None:
        """Offers that fail at the same time count as one failure."""
        before = self._rests.get(node, _Rest(0.0, 0.0))
        if now >= before.until:
            pause_s = min(max(2 * before.pause_s, REST_FIRST_S), self._max_s)
            self._rests[node] = _Rest(now + pause_s, pause_s)

    def rest_for(self, node: Node, now: float, seconds: float) -> None:
        """A rest that is no failure."""
        pause_s = self._rests[node].pause_s if node in self._rests else 0.0
        self._rests[node] = _Rest(now + seconds, pause_s)

    def end(self, node: Node) -> None:
        self._rests.pop(node, None)

    def keep_only(self, nodes: Collection[Node]) -> None:
        for gone in self._rests.keys() - set(nodes):
            del self._rests[gone]
