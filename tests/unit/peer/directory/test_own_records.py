"""A node that withdraws pages waits for the followers of its records."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from peercached.peer.directory.own_records import SHARE, OwnRecords

POSITION = 7


class Engine:
    """`behind`: followers by incarnation, with the seconds until their leases end."""

    def __init__(self, behind: dict[int, float]) -> None:
        self.behind = behind
        self.told: list[bytes] = []
        self.looks = 0

    def tell_followers(self, digests: bytes) -> int:
        self.told.append(digests)
        return POSITION

    def followers_behind(self, position: int) -> list[tuple[int, float]]:
        assert position == POSITION
        self.looks += 1
        return list(self.behind.items())


def followers(engine: Engine, timeout_s: float = 20.0) -> OwnRecords:
    members = {1: (11, "b"), 2: (12, "c")}
    nodes = {
        index: SimpleNamespace(address=SimpleNamespace(incarnation=incarnation, node_id=node_id))
        for index, (incarnation, node_id) in members.items()
    }
    return OwnRecords(cast(Any, engine), cast(Any, SimpleNamespace(nodes=nodes)), timeout_s)


def test_a_wait_ends_as_soon_as_the_last_follower_has_moved() -> None:
    engine = Engine({11: 5.0, 12: 5.0})
    waited = followers(engine)

    async def claim() -> None:
        told = asyncio.ensure_future(waited.told(b"d" * 16))
        for incarnation in (12, 11):
            await asyncio.sleep(0)
            assert not told.done()
            del engine.behind[incarnation]
            looks = engine.looks
            waited.moved()
            for _ in range(5):
                await asyncio.sleep(0)
            assert engine.looks == looks + 1, "it looks at once"
        assert await told == set()

    asyncio.run(claim())
    assert engine.told == [b"d" * 16]


def test_a_wait_ends_with_the_last_lease_although_no_follower_moves() -> None:
    engine = Engine({11: 0.01})

    async def claim() -> set[str]:
        asyncio.get_running_loop().call_later(0.01, engine.behind.clear)
        return await followers(engine).told()

    assert asyncio.run(claim()) == set()


def test_members_that_may_still_name_a_page_at_the_deadline_are_named() -> None:
    engine = Engine({12: 5.0, 99: 5.0})  # 99 is no member any more
    assert asyncio.run(followers(engine, 0.02 / SHARE).told()) == {"c"}
