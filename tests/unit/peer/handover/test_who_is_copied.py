"""From whom pages are copied that are read often."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from peercached.directory.placement import Node
from peercached.membership import NodeAddress
from peercached.peer.handover.replicas import Replicas

NODES = {i: Node(i, NodeAddress(name, i + 1, name, 1, 2)) for i, name in enumerate("abc")}


class Engine:
    """Always has pages of b, c and a node that has left."""

    def __init__(self) -> None:
        self.copied_from: list[list[int]] = []

    def hot_holders(self) -> list[int]:
        return [1, 2, 7]

    def replicate(self, holders: list[int], bytes_max: int, timeout_ms: int) -> None:
        assert (bytes_max, timeout_ms) == (100, 1000)
        self.copied_from.append(sorted(holders))


def test_pages_are_copied_only_from_nodes_that_have_missed_no_removal() -> None:
    asked: list[str] = []
    vouching = {"b"}

    async def vouches(node: NodeAddress) -> bool:
        asked.append(node.node_id)
        return node.node_id in vouching

    async def claim() -> None:
        engine, nodes = Engine(), dict(NODES)
        placement = SimpleNamespace(nodes=nodes, own=nodes[0])
        replicas = Replicas(cast(Any, engine), cast(Any, placement), vouches, lambda: 100, 1.0)

        async def turn() -> None:
            replicas.tend(0.0)
            await replicas.stop()

        await turn()
        await turn()
        assert engine.copied_from == [[1], [1]]
        assert asked == ["b", "c", "c"], "only who vouches need not be asked again"
        vouching.add("c")
        await turn()
        assert engine.copied_from[-1] == [1, 2]
        # b has started again: another process, which may not have caught up.
        vouching.discard("b")
        nodes[1] = Node(1, NodeAddress("b", 9, "b", 1, 2))
        await turn()
        assert engine.copied_from[-1] == [2]

    asyncio.run(claim())
