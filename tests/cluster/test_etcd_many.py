"""Many nodes' memberships in one process, on a real etcd: how few views they make."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

from harness.etcd import Etcd

from peercached.directory.epochs import Epochs
from peercached.membership import NodeAddress, Timing, View
from peercached.peer.client import Peers
from peercached.peer.etcd_client import EtcdClient
from peercached.peer.etcd_membership import EtcdMembership

NODES = 60
TIMING = Timing(heartbeat_interval_s=1.0, member_ttl_s=5.0)


class NothingCleared:
    def some(self) -> list[tuple[bytes, int]]:
        return []


class Many:
    def __init__(self, endpoint: str) -> None:
        self.views: list[list[View]] = [[] for _ in range(NODES)]
        self.memberships = [self._membership(endpoint, place) for place in range(NODES)]

    def _membership(self, endpoint: str, place: int) -> EtcdMembership:
        return EtcdMembership(
            NodeAddress(f"n{place:03}", 1, "127.0.0.1", 1000 + place, 1),
            EtcdClient([endpoint], None, TIMING.etcd_deadline_s),
            "/peercached",
            TIMING,
            cast(Peers, None),
            cast(Epochs, NothingCleared()),
            self.views[place].append,
            lambda reason: None,
        )

    @property
    def problems(self) -> list[str]:
        said: list[str] = []

        def say(severity: str, sentence: str, remedy: str) -> None:
            said.append(sentence)

        for membership in self.memberships:
            membership.say(say)
        return said

    @property
    def one_view(self) -> bool:
        views = {membership.view.number for membership in self.memberships}
        return len(views) == 1 and len(self.memberships[0].view.members) == NODES

    @property
    def well(self) -> bool:
        return self.one_view and not self.problems

    def made(self) -> int:
        return max(map(len, self.views))


async def until(condition: Callable[[], Any], what: str) -> None:
    until = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < until, what
        await asyncio.sleep(0.01)


@asynccontextmanager
async def many(etcd: Etcd) -> AsyncIterator[Many]:
    found = Many(etcd.endpoint)
    try:
        for membership in found.memberships:
            membership.start()
        await until(lambda: found.well, "the first view of all")
        yield found
    finally:
        for membership in found.memberships:
            await membership.stop()


def in_thread(call: Any) -> Any:
    return asyncio.get_running_loop().run_in_executor(None, call)


def test_joins_are_gathered_and_no_break_makes_a_view(etcd: Etcd) -> None:
    async def claim() -> None:
        async with many(etcd) as nodes:
            made, stamp = nodes.made(), etcd.stamp()
            assert made < NODES / 4
            await in_thread(etcd.kill)
            await until(lambda: len(nodes.problems) == NODES, "all miss etcd")
            await in_thread(etcd.start)
            await until(lambda: nodes.well, "etcd is back")
            assert (nodes.made(), etcd.stamp()) == (made, stamp)
            began = time.monotonic()
            await in_thread(etcd.begin_anew)
            await until(lambda: nodes.problems, "it is missed")
            await until(lambda: nodes.well and etcd.stamp(), "all are in the new one")
            print(f"{made} views for {NODES} joins; anew in {time.monotonic() - began:.1f} s")
            assert (nodes.made(), etcd.stamp()) == (made, stamp)

    asyncio.run(asyncio.wait_for(claim(), 90))
