"""Large clusters in which only some nodes may hold pages.

A daemon has a stream to every other, even while it has no pages. A thousand daemons would need a
million streams. Here nodes that may hold no pages have no streams, nobody waits for their records,
and handshakes go to holders only. All nodes are members, masters, owners of records and readers.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

from peercached.daemon import Daemon
from peercached.directory.messages import Ack
from peercached.directory.placement import Node

FROM_NODES = 150
HOLDERS = 30
FEWER_FROM_NODES, FEWER_HOLDERS = 1500, 15


def holders_of(size: int) -> set[str] | None:
    """The names of the nodes that may hold pages: the first three, which may be heads, a regular
    sample of the others, and newcomers. None means all nodes."""
    if size < FROM_NODES:
        return None
    holders = HOLDERS if size < FEWER_FROM_NODES else FEWER_HOLDERS
    every = max((size - 3) // (holders - 3), 1)
    some = {f"n{at:04}" for at in (*range(3), *range(3, size, every))}
    return some | {f"x{newcomer}" for newcomer in range(10)}


def only_holders_tell(daemon: Daemon, holders: Container[str]) -> None:
    streams, side, links, nodes = (
        daemon.streams, daemon.owner_side, daemon.links, daemon.placement.nodes
    )  # fmt: skip
    tells = daemon.placement.own.address.node_id in holders
    set_streams, set_side, greet = streams.set_view, side.set_view, links._greet

    def streams_to_all(number: int, added: list[Node], removed: list[Node]) -> None:
        set_streams(number, added if tells else [], removed if tells else [])

    def wait_for_holders(number: int, members: Iterable[int]) -> list[tuple[int, int, Ack]]:
        told_by = (i for i in members if nodes[i].address.node_id in holders)
        return set_side(number, told_by)

    async def greet_holder(node: Node) -> None:
        if node.address.node_id in holders:
            await greet(node)

    replaced: Any = streams
    replaced.set_view = streams_to_all
    replaced = side
    replaced.set_view = wait_for_holders
    replaced = links
    replaced._greet = greet_holder
