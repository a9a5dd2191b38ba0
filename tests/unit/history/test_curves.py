"""The last hour in numbers: points at the multiples of ten seconds, each with the growth since the
one before."""

from __future__ import annotations

import sys
from array import array
from types import SimpleNamespace
from typing import Any

import pytest

from peercached._native import latency_bounds_us
from peercached.admin.status import Status
from peercached.history import curves
from peercached.history.curves import KINDS, POINT_S, POINTS_MAX, SERIES, Curves
from peercached.observe.latency import quantile_s


class Counting:
    """A data plane that counts."""

    def __init__(self) -> None:
        self.found = Status().model_dump()
        self.found |= {"peers": [{"bytes": 0}]}
        self.found["operations"]["set"]["ok"] = 0
        self.rails = [{"bytes": 0}]
        self.gets = [0] * (len(latency_bounds_us()) + 1)

    def stats(self) -> dict[str, Any]:
        return self.found

    def transport(self) -> dict[str, Any]:
        return {"rails": self.rails}

    def latencies(self) -> list[tuple[str, str, int, bytes]]:
        packed = array("Q", self.gets).tobytes()
        return [("get", "pool", 0, packed), ("get", "peer", 0, packed), ("peer_read", "1", 0, b"")]


class Node:
    at = 0.0  # the wall clock

    def __init__(self) -> None:
        self.engine = Counting()
        Node.at = 1_000_000.0
        self.curves = Curves("a", self.engine)  # type: ignore[arg-type]
        self.curves.tend(self.at)

    def after(self, seconds: float) -> dict[str, Any]:
        Node.at += seconds
        self.curves.tend(self.at)
        return self.curves.document()


@pytest.fixture(autouse=True)
def wall_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curves, "time", SimpleNamespace(time=lambda: Node.at))


def test_point_has_growth_room_and_latencies_of_its_ten_seconds() -> None:
    node = Node()
    found = node.engine.found
    for keys in (3, 4):
        found["demand"]["asked"] += 2 * keys
        found["demand"]["found"]["peer"] = found["demand"]["found"].get("peer", 0) + keys
        found["demand"]["found"]["store"] = found["demand"]["found"].get("store", 0) + 1
        found["peers"][0]["bytes"] += 100
        node.engine.rails[0]["bytes"] += 60
        found["pool"]["used_bytes"] = 1000 * keys
        found["pool"]["given"] += keys
        node.engine.gets[5] += keys
        node.after(POINT_S)
    assert node.after(POINT_S - 1)["at"] == [1_000_010, 1_000_020], "not yet"
    node.after(1)
    document = node.curves.document()
    assert document["seconds"] == [10, 10, 10]
    series = document["series"]
    assert series["asked"] == [6, 8, 0]
    assert series["found_peer"] == [3, 4, 0] and series["found_store"] == [1, 1, 0]
    assert (series["rdma_bytes"], series["tcp_bytes"]) == ([60, 60, 0], [40, 40, 0])
    assert series["used"] == [3000, 4000, 4000]
    assert series["given"] == [3, 4, 0]
    low, high = (bound / 1e6 for bound in latency_bounds_us()[4:6])
    assert low < series["get_p50"][0] < series["get_p99"][0] <= high
    assert series["get_p50"][2] is None, "no call, no latency"
    assert {f"{kind}_p99" for kind in KINDS} < series.keys()


def test_ring_keeps_an_hour_in_bounded_memory() -> None:
    node = Node()
    for _ in range(POINTS_MAX + 5):
        node.after(POINT_S)
    at = node.curves.document()["at"]
    assert at[-1] - at[0] == 3600 - POINT_S
    points = node.curves._points
    kept = sum(sys.getsizeof(part) for point in points for part in (point, *point))
    assert kept < 200_000, f"{len(SERIES)} numbers each"


def test_clock_that_is_set_back_begins_anew_and_a_late_point_says_so() -> None:
    node = Node()
    node.after(POINT_S)
    assert node.after(3 * POINT_S)["seconds"] == [10, 30]
    assert node.after(-600)["at"] == [1_000_040 - 600]
    node.engine.found["demand"]["asked"] = -1
    assert node.after(POINT_S)["series"]["asked"][-1] == 0, "a counter that fell has not grown"


@pytest.mark.parametrize(
    ("counts", "share", "wanted"),
    [
        ([0, 0, 0], 0.5, None),
        ([4, 0, 0], 0.5, 5e-6),
        ([4, 4, 0], 0.75, 15e-6),
        ([0, 0, 9], 0.99, 20e-6),
    ],
)
def test_quantile_lies_within_its_bucket(
    counts: list[int], share: float, wanted: float | None
) -> None:
    assert quantile_s([10, 20], counts, share) == wanted
