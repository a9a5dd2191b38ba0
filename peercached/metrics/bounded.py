"""Bounds the number of series of a label without losing any number.

The first few peers or classes keep their own label. The others are summed under `OTHERS`. Peers are
taken in the order of their names, so that the same ones keep their labels when members come and go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

OTHERS = "(others)"
PEERS_MAX = 64
CLASSES_MAX = 16

Sums = dict[str, dict[str, float]]  # label -> name -> number


def by_peer(rows: Iterable[Mapping[str, Any]], key: str, names: Sequence[str]) -> Sums:
    """Sums of `names` per value of `key`, in at most PEERS_MAX + 1 groups."""
    rows = list(rows)
    return sums(rows, key, names, sorted({str(row[key]) for row in rows})[:PEERS_MAX])


def sums(
    rows: Iterable[Mapping[str, Any]], key: str, names: Sequence[str], keep: Sequence[str]
) -> Sums:
    """Sums of `names` for each label in `keep`, in that order, and one for all others."""
    found: Sums = {label: dict.fromkeys(names, 0.0) for label in keep}
    for row in rows:
        label = str(row[key])
        if label not in found:
            label = OTHERS
            found.setdefault(OTHERS, dict.fromkeys(names, 0.0))
        into = found[label]
        for name in names:
            into[name] += row.get(name, 0)
    return found
