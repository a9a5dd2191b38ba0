"""Chooses the peers that are offered the pages of a draining node, and their order."""

from __future__ import annotations

from collections.abc import Iterable

from peercached.directory.placement import Node

# After so many seconds all members have the view with a new node, and can read from it.
SETTLED_S = 5.0


def takers(nodes: Iterable[Node], own: Node, turn: int, now: float) -> list[Node]:
    """The peers in order, a different one first each turn. Newcomers come last. In a rolling
    restart, other nodes may not have heard of a node that has just come back. They could not read
    the pages that it took. `now` is monotonic seconds."""
    able = [node for node in nodes if node is not own and not (node.suspect or node.leaving)]
    settled = [node for node in able if now - node.since >= SETTLED_S]
    newcomers = [node for node in able if now - node.since < SETTLED_S]
    return _turned(settled, turn) + _turned(newcomers, turn)


def _turned(nodes: list[Node], turn: int) -> list[Node]:
    at = turn % len(nodes) if nodes else 0
    return nodes[at:] + nodes[:at]
