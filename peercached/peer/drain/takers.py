"""Who is offered the pages of a node that drains, and in what order."""

from __future__ import annotations

from collections.abc import Iterable

from peercached.directory.placement import Node

# By then everybody has the view with a node that came, and can read from it.
SETTLED_S = 5.0


def takers(nodes: Iterable[Node], own: Node, turn: int, now: float) -> list[Node]:
    """Another one first each turn. Newcomers last: in a rolling restart the node that is just back
    would get pages that others cannot read there yet, for they have not heard of it."""
    able = [node for node in nodes if node is not own and not (node.suspect or node.leaving)]
    settled = [node for node in able if now - node.since >= SETTLED_S]
    newcomers = [node for node in able if now - node.since < SETTLED_S]
    return _turned(settled, turn) + _turned(newcomers, turn)


def _turned(nodes: list[Node], turn: int) -> list[Node]:
    at = turn % len(nodes) if nodes else 0
    return nodes[at:] + nodes[:at]
