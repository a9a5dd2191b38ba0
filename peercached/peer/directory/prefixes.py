"""How much of a prompt's beginning each node has: for routers."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from peercached.directory.layout import DIGEST_BYTES, SELF, check_packed
from peercached.directory.placement import Placement
from peercached.peer.directory.records import Records

if TYPE_CHECKING:
    from peercached._native import Engine


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
            present, nodes = self._engine.prefixes(digests, rows)
            return ClusterPrefix(present, self._named(nodes))
        present, nodes = self._engine.prefixes(digests, b"")
        # Our records do not prove absence, and they lag. Mostly the first missing page is nowhere,
        # and one owner can say so.
        missing = digests[DIGEST_BYTES * present :]
        rows = await self._rows(missing[:DIGEST_BYTES], until)
        if rows:
            rows += await self._rows(missing[DIGEST_BYTES:], until)
            present, nodes = self._engine.prefixes(digests, rows)
        return ClusterPrefix(present, self._named(nodes))

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
