"""From whom pages are copied that are read often."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from peercached.directory.placement import Node
from peercached.membership import NodeAddress
from peercached.peer.handover.replicas import ASK_EVERY_S, Replicas

NODES = {i: Node(i, NodeAddress(name, i + 1, name, 1, 2)) for i, name in enumerate("abc")}


class Engine:
    def __init__(self) -> None:
        self.vouching: set[tuple[int, int]] = set()
        self.hot: list[int] = []
        self.copied_by: list[int] = []  # the nodes that vouched then

    def set_vouches(self, node: int, incarnation: int) -> None:
        self.vouching.add((node, incarnation))

    def set_replicas_max(self, bytes: int) -> None:
        assert bytes == 100

    def hot_holders(self) -> list[int]:
        return self.hot

    def replicate(self, timeout_ms: int) -> None:
        assert timeout_ms == 1000
        self.copied_by.append(len(self.vouching))
        self.hot = []


def test_the_data_plane_is_told_which_nodes_have_missed_no_removal() -> None:
    asked: list[str] = []
    vouching = {"b"}
    silent = asyncio.Event()

    async def vouches(node: NodeAddress) -> bool:
        asked.append(node.node_id)
        if node.node_id == "c":
            await silent.wait()
        return node.node_id in vouching

    async def claim() -> None:
        engine, nodes = Engine(), dict(NODES)
        placement = SimpleNamespace(nodes=nodes)
        replicas = Replicas(cast(Any, engine), cast(Any, placement), vouches, lambda: 100, 1.0)
        now = 0.0

        async def turns(count: int) -> None:
            nonlocal now
            for _ in range(count):
                now += ASK_EVERY_S
                replicas.tend(now)
                for _ in range(3):
                    await asyncio.sleep(0)

        await turns(4)
        assert engine.vouching == {(1, 2)}, "c has not answered yet"
        assert asked == ["b", "c"], "one question at a time"
        silent.set()
        await turns(2)
        assert engine.vouching == {(1, 2)}, "c does not vouch"
        vouching.add("c")
        await turns(2)
        assert engine.vouching == {(1, 2), (2, 3)}
        count = len(asked)
        await turns(3)
        assert len(asked) == count, "who vouches need not be asked again"
        # b has started again: another process, which may not have caught up.
        vouching.discard("b")
        nodes[1] = Node(1, NodeAddress("b", 9, "b", 1, 2))
        await turns(2)
        assert asked[count:] == ["b", "b"]
        assert (1, 9) not in engine.vouching
        await replicas.stop()
        # The holder of hot pages is asked at once.
        vouching.add("b")
        engine.hot, before = [1, 7], len(engine.vouching)
        replicas.tend(now)
        await replicas.stop()
        assert engine.copied_by == [before + 1]

    asyncio.run(claim())
