"""A node that starts and cannot compare yet: its older pages are held back."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from peercached.directory.placement import Node
from peercached.membership import NodeAddress
from peercached.peer.removals import catch_up
from peercached.peer.removals.catch_up import RemovalCatchUp
from peercached.proto import peer_pb2 as pb

MEMBER = Node(1, NodeAddress("m", 5, "10.0.0.1", 1, 2))


class Owing:
    """Removals, as far as a start needs them."""

    last_settled = ended_at = before = 0
    hides_older = False

    def __init__(self, did: list[str], is_known: bool) -> None:
        self.owes, self.is_known, self._did = True, is_known, did
        self.waits_for, self.absent = {"m"}, {"m"}
        self.epochs_before: dict[bytes, int] = {}
        self.processes = SimpleNamespace(find=lambda *_: None)

    @property
    def starts(self) -> bool:
        return not self.last_settled

    async def persisted(self) -> None:
        pass

    async def in_thread(self, call: Any, *args: Any) -> Any:
        return await asyncio.to_thread(call, *args)

    async def tell_followers(self) -> None:
        self._did.append("tell followers")

    def owes_nobody(self) -> None:
        self.owes, self.last_settled = False, 9
        self._did.append("paid")


class Starting(RemovalCatchUp):
    """Member "m" answers with `reply`. The answers suffice when `suffices` is set. `did`: what was
    done with the engine, and at the member."""

    def __init__(self, is_known: bool = True) -> None:
        self.did: list[str] = []
        self.reply, self.suffices = pb.MissedRemovalsReply(), asyncio.Event()
        self.tried = asyncio.Event()
        engine = SimpleNamespace(
            drop_all=lambda: self.did.append("drop"),
            hide_older=lambda: self.did.append("hide"),
            show_older=lambda: self.did.append("show"),
            set_paused=lambda _: None,
            namespace_epochs=dict,
            removals_last=1,
            stats=lambda: {"pool": {"keys": 1}},
        )
        own = SimpleNamespace(address=NodeAddress("a", 9, "10.0.0.2", 1, 2))
        placement = SimpleNamespace(others=[MEMBER], own=own, find_process=lambda _: MEMBER)
        super().__init__(
            cast(Any, engine),
            cast(Any, placement),
            cast(Any, None),
            cast(Any, Owing(self.did, is_known)),
            timeout_s=0.01,
            wait_s=0.0,
            cluster=cast(Any, SimpleNamespace(waits=False)),
        )

    async def _ask_all(self) -> dict[str, pb.MissedRemovalsReply]:
        return {"m": self.reply}

    async def _ask(self, node: Node, heard: int | None = None) -> pb.MissedRemovalsReply:
        self.did.append("heard")
        self.reply.owes &= heard != self.reply.reached
        return self.reply

    async def _try(self, replies: Any) -> bool:
        self.tried.set()
        return self.suffices.is_set()

    async def more_rounds(self, number: int = 2) -> None:
        for _ in range(number):
            self.tried.clear()
            await asyncio.wait_for(self.tried.wait(), 10)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ASK_AGAIN_S", "ASK_AGAIN_MAX_S"):
        monkeypatch.setattr(catch_up, name, 0.001)


async def test_older_pages_are_dropped_if_nothing_tells_which_are_older() -> None:
    for is_known in (True, False):
        node = Starting(is_known)
        await node.run()
        assert ("drop" in node.did) is not is_known
        if not is_known:
            assert node.did.index("drop") < node.did.index("hide")
        await node.stop()


async def test_followers_hear_what_was_hidden_again_before_members_use_its_records() -> None:
    node = Starting()
    await node.run()
    await node.stop()
    node.did.clear()
    await node._hide_older_again()
    hidden = node.did.index("hide")
    assert node.did[hidden + 1 : hidden + 3] == ["tell followers", "heard"]


async def test_pages_of_this_start_are_hidden_if_it_owes_anew_while_it_is_held_back() -> None:
    node = Starting()
    node.reply.owes = True  # as each start does until it has told
    await node.run()
    await node.more_rounds()
    assert node.did.count("hide") == 1 and not node.reply.owes
    node.reply.owes, node.reply.reached = True, 7
    await node.more_rounds(3)
    await node.stop()
    assert node.did.count("hide") == 2 and not node.reply.owes


async def test_a_start_that_was_away_while_it_compared_compares_again() -> None:
    """Hiding takes long, and the answers suffice meanwhile: they may lack what was removed then."""
    node, hidden = Starting(), asyncio.Event()
    await node.run()
    await node.more_rounds()
    hide_older = node._hide_older

    async def late() -> None:
        await hidden.wait()
        await hide_older()

    node._hide_older = late
    node.did.clear()
    node._confirmed.clear()  # or its word may be from before
    node.must_compare(MEMBER.address)
    node.suffices.set()
    await asyncio.sleep(0.05)
    assert "paid" not in node.did and "show" not in node.did
    hidden.set()
    await asyncio.wait_for(cast(Any, node._task), 10)
    assert [what for what in node.did if what in ("hide", "paid", "show")] == [
        "hide",
        "paid",
        "show",
    ]
    assert not node._is_held_back
