"""A clear must reach all members before it reports success."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from peercached.directory.placement import Node
from peercached.membership import NodeAddress
from peercached.peer.rpc.failures import Disconnected
from peercached.peer.server.cluster_wide import ClusterWide
from peercached.proto import peer_pb2 as pb

TIMEOUT_S = 0.5


def node(index: int, name: str) -> Node:
    return Node(index, NodeAddress(name, 1, f"10.0.0.{index}", 1, 2))


class Members(SimpleNamespace):
    @property
    def others(self) -> list[Node]:
        return [each for each in self.nodes.values() if each is not self.own]


class Cleared:
    """Node a in view 1 with b. The test decides the answers of other nodes."""

    def __init__(self) -> None:
        self.placement = Members(view=SimpleNamespace(number=1), own=node(0, "a"))
        self.placement.nodes = {0: self.placement.own, 1: node(1, "b")}
        self.asked: list[str] = []
        self.named = 1  # the view number in b's answers
        self.epoch = 5

        async def persisted() -> None: ...
        async def store_knows(namespace_id: bytes, epoch: int) -> tuple[int, str]:
            return epoch, ""

        async def still_silent(told: Any) -> list[str]:
            return []

        self.on_asked: Any = lambda name: None
        epochs = SimpleNamespace(
            next_of=lambda id, now: self.epoch,
            raise_to=lambda id, epoch, by: epoch,
            persisted=persisted,
        )
        self.wide = ClusterWide(
            cast(Any, SimpleNamespace(namespace_id=lambda name: bytes(16))),
            cast(Any, self.placement),
            cast(Any, None),
            cast(Any, SimpleNamespace(call=self.call)),
            cast(Any, SimpleNamespace(why_outside="")),
            cast(Any, epochs),
            cast(Any, SimpleNamespace(still_silent=still_silent)),
            TIMEOUT_S,
            cast(Any, SimpleNamespace(clear=store_knows, differs=lambda _: "")),
        )

    async def call(self, asked: Node, method: str, request: Any, timeout_s: float) -> Any:
        name = asked.address.node_id
        self.asked.append(name)
        self.on_asked(name)
        if name == "silent":
            raise Disconnected("silent")
        return pb.RaiseEpochReply(epoch=request.epoch.epoch, view_number=self.named)

    def members(self, number: int, *others: str) -> None:
        self.placement.view.number = number
        known = {each.address.node_id: each for each in self.placement.nodes.values()}
        for name in others:
            index = len(self.placement.nodes)
            self.placement.nodes.setdefault(
                known[name].index if name in known else index, known.get(name) or node(index, name)
            )

    def run(self) -> list[str]:
        return asyncio.run(self.wide.clear("model"))


@pytest.fixture
def cleared() -> Cleared:
    return Cleared()


def test_all_members_are_asked_once(cleared: Cleared) -> None:
    assert cleared.run() == []
    assert cleared.asked == ["b"]


def test_clear_also_asks_members_that_join_meanwhile(cleared: Cleared) -> None:
    def comes_in(name: str) -> None:
        if name == "b":
            cleared.members(2, "b", "c")

    cleared.on_asked = comes_in
    assert cleared.run() == []
    assert cleared.asked == ["b", "c"]


def test_clear_waits_for_the_members_of_a_newer_named_view(cleared: Cleared) -> None:
    cleared.named = 2

    async def claim() -> list[str]:
        asyncio.get_running_loop().call_later(0.05, cleared.members, 2, "b", "c")
        return await cleared.wide.clear("model")

    assert asyncio.run(claim()) == []
    assert cleared.asked == ["b", "c"]


def test_a_view_that_does_not_come_is_named(cleared: Cleared) -> None:
    cleared.named = 2
    assert cleared.run() == ["members of a newer view, which this node has not heard of yet"]


def test_clear_names_members_that_do_not_answer(cleared: Cleared) -> None:
    cleared.members(1, "b", "silent")
    assert cleared.run() == ["silent"]
