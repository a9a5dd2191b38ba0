"""Large clusters with only some nodes that may hold pages.

A daemon follows every other, even one without pages. A thousand daemons would need a million
channels. Here nobody follows nodes that may hold no pages (RecordLog.follow), and handshakes go to
holders only. All nodes are members, masters, owners of records and readers.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from peercached.daemon import Daemon
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


def greets_only_holders(daemon: Daemon, holders: Container[str]) -> None:
    links: Any = daemon.links
    greet = links._greet

    async def greet_holder(node: Node) -> None:
        if node.address.node_id in holders:
            await greet(node)

    links._greet = greet_holder
