"""Bounds the number of series of a label without losing any number.

The first few peers or classes keep their own label. The others are one group, `OTHERS`. Peers are
taken in the order of their names, so that the same ones keep their labels when members come and go.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

OTHERS = "(others)"
PEERS_MAX = 64
CLASSES_MAX = 16
NAMESPACES_MAX = 16

T = TypeVar("T")


def by_peer(rows: Collection[T], peer: Callable[[T], str]) -> dict[str, list[T]]:
    """The rows of each peer, in at most PEERS_MAX + 1 groups."""
    return grouped(rows, peer, sorted(set(map(peer, rows)))[:PEERS_MAX])


def grouped(
    rows: Collection[T], label: Callable[[T], str], keep: Sequence[str]
) -> dict[str, list[T]]:
    """The rows of each label in `keep`, in that order, and those of all others."""
    found: dict[str, list[T]] = {name: [] for name in keep}
    for row in rows:
        name = label(row)
        found.setdefault(name if name in found else OTHERS, []).append(row)
    return found
