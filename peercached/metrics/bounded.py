"""Labels of which there may be many: a bounded number of series, and no number is lost.

A peer's or a class's numbers have a label of their own as long as there are few; beyond that the
rest is summed up under `OTHERS`. Peers are taken in the order of their names, so that the same
ones keep their labels while members come and go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

OTHERS = "(others)"
PEERS_MAX = 64
CLASSES_MAX = 16


def by_peer(
    rows: Iterable[Mapping[str, Any]], key: str, names: Sequence[str]
) -> dict[str, Counter[str]]:
    """`names`' sums by the text at `key`, at most PEERS_MAX + 1 of them."""
    by_label: dict[str, Counter[str]] = {}
    for row in rows:
        sums = by_label.setdefault(str(row[key]), Counter())
        sums.update({name: row.get(name, 0) for name in names})
    return merged(by_label, sorted(by_label)[:PEERS_MAX])


def merged(by_label: Mapping[str, Counter[str]], keep: Sequence[str]) -> dict[str, Counter[str]]:
    """Those of `keep`, in that order, and the sum of the others."""
    kept = {label: by_label[label] for label in keep}
    rest = [sums for label, sums in by_label.items() if label not in kept]
    if rest:
        others: Counter[str] = Counter()
        for sums in rest:
            others.update(sums)
        kept[OTHERS] = others
    return kept
