"""The last hour of this node in numbers, for the dashboard's charts.

A ring with a point every POINT_S seconds, at multiples of it on the wall clock: so the points of
several nodes can be added. A point is a row of len(SERIES) doubles, and the whole ring is less than
200 KB. A restart forgets it.
"""

from __future__ import annotations

import math
import time
from array import array
from collections import deque
from typing import TYPE_CHECKING, Any

from peercached.observe.latency import quantile_s

if TYPE_CHECKING:
    from peercached._native import Engine

POINT_S = 10
POINTS_MAX = 360

TIERS = ("pool", "peer", "disk", "peer_disk", "store")
# Growth of counters since the point before.
GROWN = (
    "asked",  # keys that workers looked for
    *(f"found_{tier}" for tier in TIERS),
    "evicted",  # further keys that a pool of twice the size would have kept
    "tokens",  # found
    "get_bytes",
    "set_bytes",
    "set_pages",
    "rdma_bytes",  # read from peers
    "tcp_bytes",
    "evictions",
    "given",  # pages that went to other nodes, by spill or otherwise
)
# Bytes at the time of the point.
ROOM = ("used", "capacity", "disk_used", "disk_capacity")
# Latencies since the point before, in seconds. Not a number if there was no call.
KINDS = ("get", "exists", "set")
LATENCIES = tuple(f"{kind}_{name}" for kind in KINDS for name in ("p50", "p99"))
SERIES = (*GROWN, *ROOM, *LATENCIES)

_DIGITS = 4  # significant ones of a latency


class Curves:
    """On the event loop's thread."""

    def __init__(self, own_id: str, engine: Engine) -> None:
        self._own_id = own_id
        self._engine = engine
        # (seconds since 1970, seconds that the point covers, its row)
        self._points: deque[tuple[int, float, array[float]]] = deque(maxlen=POINTS_MAX)
        self._at = -1  # of the last look; -1: there was none
        self._looked = 0.0  # monotonic seconds
        self._counters: dict[str, int] = {}
        self._counts: dict[str, list[int]] = {}  # of calls, by kind and duration

    def tend(self, now: float) -> None:
        """Adds a point if one is due. Call it often; `now` is monotonic seconds."""
        at = int(time.time()) // POINT_S * POINT_S
        if at == self._at:
            return
        if at < self._at:  # the clock was set back
            self._points.clear()
        stats = self._engine.stats()
        counters = _counters(stats, self._engine.transport()["rails"])
        counts = self._call_counts()
        if self._at >= 0:
            row = [
                *(max(counters[name] - self._counters[name], 0) for name in GROWN),
                *_room(stats),
                *self._latencies(counts),
            ]
            self._points.append((at, now - self._looked, array("d", row)))
        self._at, self._looked = at, now
        self._counters, self._counts = counters, counts

    def document(self) -> dict[str, Any]:
        """The fields of admin.curves.Curves."""
        rows = [row for _, _, row in self._points]
        return {
            "node_id": self._own_id,
            "at": [at for at, _, _ in self._points],
            "seconds": [round(seconds, 3) for _, seconds, _ in self._points],
            "series": {
                name: [_shown(row[place]) for row in rows] for place, name in enumerate(SERIES)
            },
        }

    def _call_counts(self) -> dict[str, list[int]]:
        """Calls since the start, for each kind; all labels of it together."""
        found: dict[str, list[int]] = {}
        for kind, _, _, packed in self._engine.latencies():
            if kind in KINDS:
                counts = memoryview(packed).cast("Q").tolist()
                before = found.get(kind)
                found[kind] = (
                    [a + b for a, b in zip(before, counts, strict=True)] if before else counts
                )
        return found

    def _latencies(self, counts: dict[str, list[int]]) -> list[float]:
        from peercached._native import latency_bounds_us

        found = []
        for kind in KINDS:
            now = counts.get(kind, [])
            before = self._counts.get(kind) or [0] * len(now)
            grown = [a - b for a, b in zip(now, before, strict=True)]
            found += [quantile_s(latency_bounds_us(), grown, share) for share in (0.5, 0.99)]
        return [math.nan if latency is None else latency for latency in found]


def _counters(stats: Any, rails: list[Any]) -> dict[str, int]:
    demand, operations = stats["demand"], stats["operations"]
    rdma_bytes = sum(rail["bytes"] for rail in rails)
    read_bytes = sum(peer["bytes"] for peer in stats["peers"])
    return {
        "asked": demand["asked"],
        **{f"found_{tier}": demand["found"].get(tier, 0) for tier in TIERS},
        "evicted": demand["evicted"].get("2x", 0),
        "tokens": demand["tokens_found"],
        "get_bytes": operations["bytes_got"],
        "set_bytes": operations["bytes_set"],
        "set_pages": operations["set"]["ok"],
        "rdma_bytes": rdma_bytes,
        "tcp_bytes": max(read_bytes - rdma_bytes, 0),
        "evictions": stats["pool"]["evictions"],
        "given": stats["pool"]["given"],
    }


def _room(stats: Any) -> tuple[int, ...]:
    pool, disk = stats["pool"], stats.get("disk", {})
    used = pool["used_bytes"], pool["capacity_bytes"]
    return (*used, disk.get("used_bytes", 0), disk.get("size_bytes", 0))


def _shown(value: float) -> float | int | None:
    if math.isnan(value):
        return None
    return int(value) if value.is_integer() else float(f"{value:.{_DIGITS}g}")
