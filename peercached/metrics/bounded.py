"""Bounds the number of series of a label without losing any number.

The first few peers or classes keep their own label. The others are summed under `OTHERS`. Peers are
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


def by_peer(
    rows: Collection[T], peer: Callable[[T], str], *numbers: Callable[[T], float]
) -> dict[str, list[float]]:
    """Sums of each of the `numbers` per peer, in at most PEERS_MAX + 1 groups."""
    return sums(rows, peer, sorted(set(map(peer, rows)))[:PEERS_MAX], *numbers)


def sums(
    rows: Collection[T],
    label: Callable[[T], str],
    keep: Sequence[str],
    *numbers: Callable[[T], float],
) -> dict[str, list[float]]:
    """Sums of each of the `numbers` for each label in `keep`, in that order, and for all others."""
    found = {name: [0.0] * len(numbers) for name in keep}
    for row in rows:
        name = label(row)
        if name not in found:
            name = OTHERS
            found.setdefault(OTHERS, [0.0] * len(numbers))
        into = found[name]
        for place, number in enumerate(numbers):
            into[place] += number(row)
    return found
