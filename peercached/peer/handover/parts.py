"""Pages that are offered to a peer at a time, and the call that offers them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import grpc

from peercached.directory.layout import DIGEST_BYTES, ROW_BYTES, holder_of, is_resident
from peercached.directory.placement import Node
from peercached.peer.directory.records import Records
from peercached.peer.rpc.failure_detector import FailureDetector
from peercached.peer.rpc.failures import CallFailed, Refused
from peercached.proto import peer_pb2 as pb

# Parts under way at a time: one peer reads while another one publishes.
OFFERS_MAX = 4
# Parts that a node takes at a time. Each needs memory beside the pool: normally 8 MiB, at most
# 64 MiB.
ADOPTS_MAX = 2
# Seconds until no reader uses a withdrawn record any more.
READERS_DONE_S = 0.5
# Share of a call's timeout that the peer may use to pull the pages.
PULL_SHARE = 0.8


@dataclass(frozen=True, slots=True)
class Part:
    namespace_id: bytes
    epoch: int
    idle_ms: int
    moves: int
    rows: Mapping[bytes, bytes]  # by digest
    spilled: bool = False

    @staticmethod
    def of(found: tuple[bytes, int, int, int, bytes], spilled: bool = False) -> Part:
        """From Engine.handovers() or coldest()."""
        namespace_id, epoch, idle_ms, moves, rows = found
        return Part(namespace_id, epoch, idle_ms, moves, dict(rows_in(rows)), spilled)


@dataclass(frozen=True, slots=True)
class Answer:
    taken: Sequence[bytes] = ()  # digests of the offered pages that the peer has now
    why_not: str = ""  # why it has not the others
    full: bool = False  # it would refuse pages that were used longer ago, too
    free_bytes: int = 0  # of its pool
    coldest_idle_ms: int = 0  # since the last use of the page that it would evict next
    failed: bool = False  # there was no answer
    busy: bool = False  # it takes other pages at the moment


@dataclass(eq=False)
class Offers:
    """Use it on the event loop's thread. `timeout_s` bounds each call."""

    _records: Records
    _failures: FailureDetector
    _timeout_s: float

    async def present_elsewhere(
        self, part: Part, nodes: Sequence[Node], in_memory: bool = False
    ) -> Mapping[Node, dict[bytes, bytes]]:
        """Our rows of pages that these nodes already hold, perhaps on disk, by the node."""
        found = await self._records.find(b"".join(part.rows), self._timeout_s)
        by_index = {node.index: node for node in nodes}
        held: defaultdict[Node, dict[bytes, bytes]] = defaultdict(dict)
        for digest, row in rows_in(found):
            node = by_index.get(holder_of(row))
            is_wanted = is_resident(row) or not in_memory
            if node is not None and digest in part.rows and is_wanted:
                held[node][digest] = part.rows[digest]
        return held

    async def offer(self, node: Node, part: Part, rows: Mapping[bytes, bytes]) -> Answer:
        """Offers these pages of the part."""
        request = pb.AdoptRequest(
            namespace_id=part.namespace_id,
            epoch=part.epoch,
            rows=b"".join(rows.values()),
            idle_ms=part.idle_ms,
            timeout_ms=round(1000 * PULL_SHARE * self._timeout_s),
            spilled=part.spilled,
            moves=part.moves,
        )
        try:
            reply: Any = await self._failures.call(node, "Adopt", request, self._timeout_s)
        except CallFailed as error:
            busy = isinstance(error, Refused) and error.code is grpc.StatusCode.RESOURCE_EXHAUSTED
            return Answer(why_not=str(error), busy=busy, failed=not busy)
        named = dict.fromkeys(digests_in(reply.digests))  # a faulty peer may repeat itself
        taken = [digest for digest in named if digest in rows]
        return Answer(taken, reply.why_not, reply.full, reply.free_bytes, reply.coldest_idle_ms)


def rows_in(packed: bytes) -> Iterator[tuple[bytes, bytes]]:
    for at in range(0, len(packed) - len(packed) % ROW_BYTES, ROW_BYTES):
        yield packed[at : at + DIGEST_BYTES], packed[at : at + ROW_BYTES]


def digests_in(packed: bytes) -> Iterator[bytes]:
    for at in range(0, len(packed) - len(packed) % DIGEST_BYTES, DIGEST_BYTES):
        yield packed[at : at + DIGEST_BYTES]
