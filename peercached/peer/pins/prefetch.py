"""Brings pages of other nodes, and of this node's disk, into this node's pool.

The data plane READs them as it does for replicas (native/engine/handover/adopter.h); the
holders keep their own.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING

from peercached.directory.layout import SELF, is_resident
from peercached.directory.placement import Node
from peercached.peer.directory.promotes import Promotes
from peercached.peer.handover.parts import rows_in
from peercached.peer.rpc.failures import Unable

if TYPE_CHECKING:
    from peercached._native import Engine


class Prefetch:
    """On the event loop's thread."""

    def __init__(self, engine: Engine, promotes: Promotes) -> None:
        self._engine = engine
        self._promotes = promotes
        self._running = asyncio.Lock()  # each turn needs memory beside the pool

    def changes(self) -> int:
        """For `learnt_at` of bring(): ask before the pages are looked up."""
        return self._engine.removal_changes()

    async def bring(
        self,
        namespace_id: bytes,
        epoch: int,
        records: Mapping[bytes, tuple[Node, bytes]],
        learnt_at: int,
        until: float,
    ) -> str:
        """Brings the pages of these records, a part at most, by digest. `until`: monotonic seconds.
        Returns why some did not come, or an empty text."""
        by_holder: defaultdict[Node, list[bytes]] = defaultdict(list)
        on_disk: defaultdict[Node, list[bytes]] = defaultdict(list)
        for digest, (node, row) in records.items():
            if is_resident(row):
                by_holder[node].append(row)
            else:
                on_disk[node].append(digest)
        for node, digests in on_disk.items():
            by_holder[node] += await self._promoted(node, digests, until)
        why = ""
        async with self._running:
            for node, rows in by_holder.items():
                if node.index != SELF and rows:
                    why = await self._read(node, namespace_id, epoch, rows, learnt_at, until) or why
        return why

    async def _promoted(self, node: Node, digests: list[bytes], until: float) -> list[bytes]:
        """Records of pages that came from a disk into its node's pool."""
        packed, left_s = b"".join(digests), max(until - time.monotonic(), 0.0)
        try:
            if node.index == SELF:
                rows = await self._promotes.serve(packed, round(1000 * left_s), False)
            else:
                rows = await self._promotes.ask(node.index, packed, left_s)
        except Unable:
            return []
        return [row for _, row in rows_in(rows) if is_resident(row)]

    async def _read(
        self,
        node: Node,
        namespace_id: bytes,
        epoch: int,
        rows: list[bytes],
        learnt_at: int,
        until: float,
    ) -> str:
        name = node.address.node_id
        left_s = until - time.monotonic()
        if left_s <= 0:
            return f"the pages of {name} did not come in time"
        _, why = await asyncio.get_running_loop().run_in_executor(
            None,
            self._engine.fetch,
            node.index,
            namespace_id,
            epoch,
            learnt_at,
            b"".join(rows),
            round(1000 * left_s),
        )
        return f"pages of {name} were not brought here: {why}" if why else ""
