"""The rule of the ring (peercached/directory/ring.py) in Python."""

from __future__ import annotations

import bisect
from collections.abc import Sequence


def owners(digest: bytes, places: Sequence[int], nodes: Sequence[int], replicas: int) -> list[int]:
    """The holder indices that own a digest, in ring order: `replicas` of them, if there are."""
    if not places:
        return []
    start = bisect.bisect_left(places, int.from_bytes(digest[8:16], "little"))
    found: list[int] = []
    for step in range(len(places)):
        node = nodes[(start + step) % len(places)]
        if node not in found:
            found.append(node)
            if len(found) == replicas:
                break
    return found
