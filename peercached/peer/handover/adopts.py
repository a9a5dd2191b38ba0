"""Takes over pages of a draining or full node: serves its Adopt calls, one bounded part each.

The data plane does the work (native/engine/handover/adopter.h). It READs the caller's pages like
any reader, verifies them, copies them into our pool and publishes them as ours.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from peercached.component import Component, Stats
from peercached.directory.layout import length_of
from peercached.directory.placement import Placement
from peercached.membership import NodeAddress
from peercached.peer.directory.shared_epochs import SharedEpochs
from peercached.peer.handover.parts import ADOPTS_MAX, digests_in, rows_in
from peercached.peer.rpc.failures import Unable
from peercached.proto import peer_pb2 as pb

if TYPE_CHECKING:
    from peercached._native import Engine

GIVERS_MAX = 256  # that are counted
MOVES_MAX = 2  # a page that moved so often is spilled no more (native/engine/handover/handover.h)


@dataclass(slots=True)
class _Taken:
    pages: int = 0
    bytes: int = 0


class Adopts(Component):
    """Use it on the event loop's thread. `timeout_s` bounds each part, even if the caller allows
    more."""

    def __init__(
        self, engine: Engine, placement: Placement, epochs: SharedEpochs, timeout_s: float
    ) -> None:
        self._engine = engine
        self._placement = placement
        self._epochs = epochs
        self._timeout_s = timeout_s
        self._running = 0
        self._taken: dict[str, _Taken] = {}  # by the giver's node id

    def sections(self, stats: Stats) -> dict[str, Any]:
        del stats
        return {
            "taken_from": [
                {"node_id": giver, "pages": taken.pages, "bytes": taken.bytes}
                for giver, taken in self._taken.items()
            ]
        }

    async def adopt(self, caller: NodeAddress, offer: pb.AdoptRequest) -> pb.AdoptReply:
        """Takes pages over.

        Raises LookupError if the caller is not in our view, ValueError for a malformed offer, and
        Unable if ADOPTS_MAX parts are under way."""
        node = self._placement.member(caller)
        if self._running >= ADOPTS_MAX:
            raise Unable(f"{self._running} parts are being taken over already")
        if offer.epoch > 0:
            self._epochs.raise_for(caller, offer.namespace_id, offer.epoch)
        work = asyncio.get_running_loop().run_in_executor(
            None,
            self._engine.adopt,
            node.index,
            offer.namespace_id,
            offer.epoch,
            offer.idle_ms,
            min(offer.moves, MOVES_MAX),
            offer.spilled,
            offer.rows,
            min(offer.timeout_ms, round(1000 * self._timeout_s)),
        )
        self._running += 1
        work.add_done_callback(self._ended)
        # If the caller gives up, the thread goes on, and counts until it ends.
        found = await asyncio.shield(work)
        digests, why_not, full, free_bytes, coldest_idle_ms = found
        self._count(caller.node_id, digests, offer.rows)
        return pb.AdoptReply(
            digests=digests,
            why_not=why_not,
            full=full,
            free_bytes=free_bytes,
            coldest_idle_ms=coldest_idle_ms,
        )

    def _ended(self, _: object) -> None:
        self._running -= 1

    def _count(self, giver: str, digests: bytes, rows: bytes) -> None:
        named = set(digests_in(digests))
        lengths = [length_of(row) for digest, row in rows_in(rows) if digest in named]
        if not lengths:
            return
        if giver not in self._taken and len(self._taken) >= GIVERS_MAX:
            del self._taken[next(iter(self._taken))]
        taken = self._taken.setdefault(giver, _Taken())
        taken.pages += len(lengths)
        taken.bytes += sum(lengths)
