"""What the worker that removes is told."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from peercached.membership import NodeAddress
from peercached.peer.removal_driver import CLEARED, Open, RemovalDriver
from peercached.proto import peer_pb2 as pb
from peercached.removals.ledger import Entry, RemovalId


def test_a_removal_that_is_cleared_at_the_last_moment_is_not_answered_ok() -> None:
    """While it is written down as not sure, the driver learns of a clear: the keys have other
    digests now, and nobody has removed those."""
    driven: list[Open] = []

    async def keep_soon() -> None:
        driven[0].cleared = True
        driven[0].done.set()

    def drive(one: Open) -> asyncio.Task[None]:
        driven.append(one)
        return asyncio.ensure_future(asyncio.sleep(60))

    async def claim() -> int:
        own = SimpleNamespace(address=NodeAddress("a", 1, "10.0.0.1", 1, 2))
        member = SimpleNamespace(unsure={}, keep_soon=keep_soon)
        driver = RemovalDriver(
            cast(Any, member),
            cast(Any, SimpleNamespace(own=own)),
            peers=cast(Any, None),
            trouble=cast(Any, None),
            timeout_s=1.0,
            waits=str,
        )
        cast(Any, driver)._drive = drive
        status, _, _ = await driver.remove(bytes(16), left_s=0.1)
        return status

    assert asyncio.run(claim()) == CLEARED


def test_a_removal_waits_for_what_its_own_node_has_not_told_yet() -> None:
    untold = [["c"], []]

    async def carry_out(id: RemovalId, digests: bytes) -> Entry:
        return Entry(id, digests, 1, 0.0, 0.0, kept=True, untold=untold.pop(0), told_in=1)

    async def claim() -> list[tuple[bool, dict[str, str]]]:
        own = SimpleNamespace(address=NodeAddress("a", 1, "10.0.0.1", 1, 2))
        view = SimpleNamespace(members=[], number=1)
        member = SimpleNamespace(
            carry_out=carry_out, vouches=True, to_ask_for=list, keep_changes=lambda: None
        )
        driver = RemovalDriver(
            cast(Any, member),
            cast(Any, SimpleNamespace(own=own, view=view, nodes={0: own})),
            peers=cast(Any, None),
            trouble=cast(Any, None),
            timeout_s=1.0,
            waits=str,
        )
        one = Open(RemovalId(1, 1), bytes(16), 0.0)
        return [(await driver._round(one), dict(one.missing)) for _ in range(2)]

    first, second = asyncio.run(claim())
    assert first == (False, {"a": "it has not told c yet"})
    assert second[0]


def test_answers_are_of_the_members_of_one_view() -> None:
    """Of a member that comes or is back meanwhile those of before say nothing."""
    own = SimpleNamespace(address=NodeAddress("a", 1, "10.0.0.1", 1, 2))
    other = SimpleNamespace(address=NodeAddress("b", 2, "10.0.0.2", 1, 2))
    members = [
        SimpleNamespace(node_id=node.address.node_id, address=node.address) for node in (own, other)
    ]
    view = SimpleNamespace(members=members, number=1)
    placement = SimpleNamespace(own=own, view=view, nodes={0: own, 1: other}, find=lambda *_: own)
    of_view = iter([1, 1, 2])  # that b answers of
    asked: list[int] = []

    async def carry_out(id: RemovalId, digests: bytes) -> Entry:
        return Entry(id, digests, 1, 0.0, 0.0, kept=True, told_in=view.number)

    async def ask(node: object, one: Open) -> pb.RemoveReply:
        asked.append(view.number)
        if len(asked) == 1:
            view.number = 2  # somebody comes while b answers
        return pb.RemoveReply(kept=True, view_number=next(of_view))

    async def claim() -> list[tuple[bool, dict[str, str]]]:
        member = SimpleNamespace(
            carry_out=carry_out, vouches=True, to_ask_for=list, keep_changes=lambda: None
        )
        driver = RemovalDriver(
            cast(Any, member),
            cast(Any, placement),
            peers=cast(Any, None),
            trouble=cast(Any, None),
            timeout_s=1.0,
            waits=str,
        )
        cast(Any, driver)._ask = ask
        one = Open(RemovalId(1, 1), bytes(16), 0.0)
        return [(await driver._round(one), dict(one.missing)) for _ in range(3)]

    first, second, third = asyncio.run(claim())
    assert first == (False, {"a newer view": "not all have heard of it yet"})
    assert second == (False, {"b": "it has not heard of the newest view yet"})
    assert third[0]
    assert asked == [1, 2, 2]
