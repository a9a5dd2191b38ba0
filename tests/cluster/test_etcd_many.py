"""Many nodes' memberships in one process on a real etcd: how few views they make.

This process receives the changes of all nodes. 300 simultaneous joins make 90 000 changes, 10 s of
processor time (docs/performance.md). So 300 nodes need an idle machine, and 150 nodes need at least
half a processor. With less, leases expire before they are renewed. In production a node handles
only its own 300 changes.
"""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from harness.clock import seconds
from harness.etcd import Etcd
from harness.etcd_memberships import in_thread, membership, until
from harness.said import sentences

from peercached.membership import Timing, View

WITHIN_S = 120.0
TIMING = Timing(heartbeat_interval_s=seconds(1.0), member_ttl_s=seconds(5.0))


class Many:
    def __init__(self, endpoint: str, size: int) -> None:
        self.size = size
        self.views: list[list[View]] = [[] for _ in range(size)]
        self.memberships = [
            membership(f"n{place:03}", 1, 1000 + place, endpoint, TIMING, self.views[place])
            for place in range(size)
        ]

    @property
    def problems(self) -> list[str]:
        return [one for membership in self.memberships for one in sentences(membership.say)]

    @property
    def one_view(self) -> bool:
        views = {membership.view.number for membership in self.memberships}
        return len(views) == 1 and len(self.memberships[0].view.members) == self.size

    @property
    def well(self) -> bool:
        return self.one_view and not self.problems

    def made(self) -> int:
        return max(map(len, self.views))


@asynccontextmanager
async def many(etcd: Etcd, size: int) -> AsyncIterator[Many]:
    found = Many(etcd.endpoint, size)
    try:
        for membership in found.memberships:
            membership.start()
        await until(lambda: found.well, "the first view of all", WITHIN_S)
        yield found
    finally:
        for membership in found.memberships:
            await membership.stop()


SLOW = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.mark.parametrize("size", [60, pytest.param(150, marks=SLOW)])
async def test_joins_are_gathered_and_no_break_makes_a_view(etcd: Etcd, size: int) -> None:
    async with many(etcd, size) as nodes:
        made, stamp = nodes.made(), etcd.stamp()
        assert made < size / 4
        await in_thread(etcd.kill)
        await until(lambda: len(nodes.problems) == size, "all miss etcd", WITHIN_S)
        await in_thread(etcd.start)
        await until(lambda: nodes.well, "etcd is back", WITHIN_S)
        assert (nodes.made(), etcd.stamp()) == (made, stamp)
        began = time.monotonic()
        await in_thread(etcd.begin_anew)
        await until(lambda: nodes.problems, "it is missed", WITHIN_S)
        await until(lambda: nodes.well and etcd.stamp(), "all are in the new one", WITHIN_S)
        print(f"{made} views for {size} joins; anew in {time.monotonic() - began:.1f} s")
        assert (nodes.made(), etcd.stamp()) == (made, stamp)
