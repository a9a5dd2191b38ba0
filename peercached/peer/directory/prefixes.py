"""How much of a prompt's beginning each node has: for routers."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from peercached.directory.layout import DIGEST_BYTES, SELF, check_packed
from peercached.directory.placement import Placement
from peercached.peer.directory.records import Records

if TYPE_CHECKING:
    from peercached._native import Engine


# A page at a node costs 0.15 us. So a piece that 128 nodes have takes 1.2 ms, and 4096 pages 80 ms.
_PIECE_BYTES: Final = 64 * DIGEST_BYTES


@dataclass(frozen=True, slots=True)
class NodePrefix:
    """Pages from the first one up to the first that the node has not."""

    node_id: str
    host: str
    prefix: int
    in_pool: int  # of these; the others are on its disk only


@dataclass(frozen=True, slots=True)
class ClusterPrefix:
    present: int  # pages up to the first that no node has
    nodes: list[NodePrefix]  # those with at least one page; the longest prefix first


class Prefixes:
    """Use it on the event loop's thread. Suspect nodes are left out: their pages are misses."""

    def __init__(self, engine: Engine, placement: Placement, records: Records) -> None:
        self._engine = engine
        self._placement = placement
        self._records = records

    def digests(self, namespace: str, keys: list[str]) -> bytes:
        """Packed digests. ValueError names a key that is none."""
        return self._engine.digests(namespace, keys)

    async def find(self, digests: bytes, left_s: float) -> ClusterPrefix:
        """Answers within `left_s`, with what is known by then."""
        check_packed(digests, DIGEST_BYTES, "digests")
        until = time.monotonic() + left_s
        if not self._all_followed():
            rows = await self._records.find(digests, left_s)
            return await self._count(digests, rows, until)
        found = await self._count(digests, b"", until)
        present = found.present
        # Our records do not prove absence, and they lag. Mostly the first missing page is nowhere,
        # and one owner can say so.
        missing = digests[DIGEST_BYTES * present :]
        rows = await self._rows(missing[:DIGEST_BYTES], until)
        if rows:
            rows += await self._rows(missing[DIGEST_BYTES:], until)
            found = await self._count(digests, rows, until)
        return found

    async def _count(self, digests: bytes, rows: bytes, until: float) -> ClusterPrefix:
        """Piece by piece, since others use this thread, too, and all nodes may have all pages. Ends
        with the first page that no node has: a question costs as much as there is to tell."""
        present, nodes = 0, dict[int, tuple[int, int]]()
        for begin in range(0, len(digests), _PIECE_BYTES):
            piece = digests[begin : begin + _PIECE_BYTES]
            if begin:
                await asyncio.sleep(0)
                if time.monotonic() >= until:
                    break
            more, found = self._engine.prefixes(piece, rows)
            for index, prefix, in_pool in found:
                before, pool = nodes.get(index, (0, 0))
                if before == present:
                    nodes[index] = before + prefix, pool + in_pool
            present += more
            if more * DIGEST_BYTES < len(piece):
                break
        return ClusterPrefix(present, self._named([(i, *counts) for i, counts in nodes.items()]))

    async def _rows(self, digests: bytes, until: float) -> bytes:
        left_s = until - time.monotonic()
        return await self._records.find(digests, left_s) if left_s > 0 else b""

    def _all_followed(self) -> bool:
        nodes = self._placement.nodes.items()
        others = {index for index, node in nodes if index != SELF and not node.suspect}
        return self._engine.stores_all and others <= set(self._engine.followed())

    def _named(self, found: list[tuple[int, int, int]]) -> list[NodePrefix]:
        nodes = self._placement.nodes
        named = [
            NodePrefix(nodes[i].address.node_id, nodes[i].address.host, prefix, in_pool)
            for i, prefix, in_pool in found
            if i in nodes
        ]
        return sorted(named, key=lambda one: (-one.prefix, -one.in_pool, one.node_id))
