"""Pins pages at the nodes that hold them, or here: finds the holders, and asks each.

The data plane keeps the pages and ends the pins (native/engine/storage/holds.h). A pin is a promise
of one node's pool. It ends there when the page is removed, cleared or handed to another node, and
with the process.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import grpc

from peercache_client.status import STATUS_OF_BYTE, Status
from peercached.cold.tier import ColdTier
from peercached.component import Component, Stats
from peercached.directory.layout import (
    DIGEST_BYTES,
    SELF,
    check_digests,
    holder_of,
    is_resident,
    length_of,
)
from peercached.directory.placement import Node, Placement
from peercached.peer.directory.promotes import Promotes
from peercached.peer.directory.records import Records
from peercached.peer.handover.parts import rows_in
from peercached.peer.pins.prefetch import Prefetch
from peercached.peer.rpc.failure_detector import FailureDetector
from peercached.peer.rpc.failures import CallFailed, Refused, Unable, Unreachable
from peercached.proto import peer_pb2 as pb
from peercached.service.settings import Settings

if TYPE_CHECKING:
    from peercached._native import Engine

# As kPinMsMax in native/common/types.h.
SECONDS_MAX = 3600
# Pages that a holder is asked for at a time.
DIGESTS_MAX = 4096
# The most that a node brings here at a time, as in a hand-over (engine/handover/handover.h).
PART_PAGES = 256
PART_BYTES = 8 << 20
# How often pages are looked for that their holder turned out not to have, and the pause in between.
# Together longer than a page stays readable at a node that handed it over.
TURNS_MAX = 4
AGAIN_S = 0.2
# Namespaces that `status` shows, those with the most pinned bytes.
NAMESPACES_SHOWN_MAX = 256


@dataclass(frozen=True, slots=True)
class Wish:
    """Raises ValueError for a time out of range."""

    namespace_id: bytes
    epoch: int
    digests: Sequence[bytes]
    seconds: float  # 0: the pins end now
    prefix: bool = False  # only the pages before the first one that is nowhere
    here: bool = False  # bring the pages to this node

    def __post_init__(self) -> None:
        check_seconds(self.seconds)


def check_seconds(seconds: float) -> None:
    """Raises ValueError."""
    if not 0 <= seconds <= SECONDS_MAX:
        raise ValueError(f"a pin for {seconds:g} seconds: at most {SECONDS_MAX} can be had")


@dataclass(slots=True)
class Pinned:
    """`statuses`: of each digest, its Status."""

    statuses: dict[bytes, int]
    why: dict[str, None] = field(default_factory=dict)  # sentences, in order

    @property
    def text(self) -> str:
        return "; ".join(self.why)

    def outcome(self, digest: bytes) -> str:
        return STATUS_OF_BYTE[self.statuses[digest]].name

    def take(self, digests: Sequence[bytes], statuses: bytes, why: str) -> None:
        self.statuses.update(zip(digests, statuses, strict=True))
        if why:
            self.why[why] = None


Holders = dict[bytes, list[tuple[Node, bytes]]]  # by digest, the best holder first


@dataclass(eq=False)
class Pins(Component):
    """Use it on the event loop's thread. `timeout_s` bounds each call to a peer."""

    _engine: Engine
    _placement: Placement
    _records: Records
    _promotes: Promotes
    _prefetch: Prefetch
    _failures: FailureDetector
    _settings: Settings
    _timeout_s: float
    _cold: ColdTier

    @property
    def _bytes_max(self) -> int:
        """Of all pinned pages here."""
        config = self._settings.config
        return int(config.pin_share * config.pool_size)

    def sections(self, stats: Stats) -> dict[str, Any]:
        own = sorted(self._engine.pinned_by_namespace(), key=lambda one: one[2], reverse=True)
        return {
            "pins": {
                **stats.get("pins", {}),
                "bytes_max": self._bytes_max,
                "namespaces": [
                    {"id": namespace_id, "pages": pages, "bytes": pinned_bytes}
                    for namespace_id, pages, pinned_bytes in own[:NAMESPACES_SHOWN_MAX]
                ],
            }
        }

    # --- for workers and operators here

    async def pin(self, wish: Wish, left_s: float) -> Pinned:
        """Pins pages, or ends their pins, within `left_s`."""
        until = time.monotonic() + left_s
        done = Pinned(dict.fromkeys(wish.digests, Status.absent))
        wanted = list(done.statuses)
        if wish.seconds == 0:
            await self._unpin(await self.find(wanted, left_s), done, until)
            return done
        asked: set[tuple[bytes, Node]] = set()
        for turn in range(TURNS_MAX):
            learnt_at = self._prefetch.changes()
            records = await self.find(wanted, max(until - time.monotonic(), 0.001))
            missing = [digest for digest in wanted if digest not in records]
            if turn == 0 and missing and self._cold.stored(missing):
                # Pages that only the object store has come to this node's pool.
                await self._cold.fetch(b"".join(missing), max(until - time.monotonic(), 0.001))
                learnt_at = self._prefetch.changes()
                records |= await self.find(missing, max(until - time.monotonic(), 0.001))
            found = answering(records, done, every=False)
            if wish.prefix and turn == 0:
                hole = next((i for i, digest in enumerate(wanted) if digest not in found), None)
                wanted = wanted[:hole]
            found = {digest: found[digest] for digest in wanted if digest in found}
            if wish.here:
                await self._pin_here(wish, found, done, learnt_at, until)
            else:
                await self._pin_there(wish, found, done, asked, until)
            # A page may have moved to another node meanwhile, or was removed and set anew.
            wanted = [digest for digest in found if done.statuses[digest] == Status.absent]
            is_full = Status.no_space in done.statuses.values()
            if not wanted or is_full or time.monotonic() + AGAIN_S >= until:
                break
            await asyncio.sleep(AGAIN_S)
        if all(status == Status.ok for status in done.statuses.values()):
            done.why.clear()  # of an earlier turn
        return done

    async def _pin_there(
        self,
        wish: Wish,
        found: Holders,
        done: Pinned,
        asked: set[tuple[bytes, Node]],
        until: float,
    ) -> None:
        """At the best holder of each page that was not asked before."""
        at: defaultdict[Node, list[bytes]] = defaultdict(list)
        for digest, holders in found.items():
            others = (node for node, _ in holders if (digest, node) not in asked)
            node = next(others, holders[0][0])
            asked.add((digest, node))
            at[node].append(digest)
        for_ms = _for_ms(wish)
        await asyncio.gather(
            *(self._ask(node, each, for_ms, done, until) for node, each in at.items())
        )

    async def find(self, digests: list[bytes], left_s: float) -> Holders:
        """Finds the holders of these pages: our pool first, then other pools, our disk, other
        disks. Suspect nodes are among them."""
        packed = b"".join(digests)
        nodes = self._placement.nodes
        here = dict(rows_in(self._engine.local_rows(packed)))
        ranked: defaultdict[bytes, list[tuple[int, int, bytes]]] = defaultdict(list)
        for digest, row in here.items():
            ranked[digest].append((0 if is_resident(row) else 2, SELF, row))
        for digest, row in rows_in(await self._records.find(packed, left_s)):
            index = holder_of(row)
            if index in nodes:
                ranked[digest].append((1 if is_resident(row) else 3, index, row))
        return {
            digest: [(nodes[index], row) for _, index, row in sorted(holders)]
            for digest, holders in ranked.items()
        }

    async def _unpin(self, records: Holders, done: Pinned, until: float) -> None:
        """At all nodes: a lookup names a few holders only, and pages move."""
        digests = list(done.statuses)
        answering(records, done, every=True)
        nodes = [node for node in self._placement.nodes.values() if not node.suspect]
        was: list[Pinned] = [Pinned({}) for _ in nodes]
        await asyncio.gather(
            *(
                self._ask(node, digests, 0, each, until)
                for node, each in zip(nodes, was, strict=True)
            )
        )
        for node, each in zip(nodes, was, strict=True):
            for digest, status in each.statuses.items():
                was_held = done.statuses[digest] != Status.ok and any(
                    node is holder for holder, _ in records.get(digest, ())
                )
                # One node had it pinned: then it was pinned. A silent holder may still have it.
                if status == Status.ok or (was_held and status != Status.absent):
                    done.statuses[digest] = status
                    done.why |= each.why

    async def _ask(
        self, node: Node, digests: Sequence[bytes], for_ms: int, done: Pinned, until: float
    ) -> None:
        for first in range(0, len(digests), DIGESTS_MAX):
            some = digests[first : first + DIGESTS_MAX]
            left_s = min(max(until - time.monotonic(), 0.001), self._timeout_s)
            if node.index == SELF:
                statuses, why = await self.pin_own(b"".join(some), for_ms, left_s)
            else:
                statuses, why = await self._call(node, b"".join(some), for_ms, left_s)
            done.take(some, statuses, why)

    async def _call(
        self, node: Node, digests: bytes, for_ms: int, left_s: float
    ) -> tuple[bytes, str]:
        count = len(digests) // DIGEST_BYTES
        request = pb.PinPagesRequest(
            digests=digests, for_ms=for_ms, timeout_ms=max(round(800 * left_s), 1)
        )
        try:
            reply = await self._failures.call(node, "PinPages", request, left_s)
        except Unreachable as error:
            return bytes([Status.suspect] * count), str(error)
        except CallFailed as error:
            why = str(error)
            if isinstance(error, Refused) and error.code is grpc.StatusCode.UNIMPLEMENTED:
                why = f"{node.address.node_id} runs an older version, which pins no pages"
            return bytes([Status.error] * count), why
        if len(reply.statuses) != count:
            return bytes([Status.error] * count), f"{node.address.node_id} gave a malformed answer"
        why = f"{node.address.node_id}: {reply.why_not}" if reply.why_not else ""
        return bytes(reply.statuses), why

    async def _pin_here(
        self, wish: Wish, found: Holders, done: Pinned, learnt_at: int, until: float
    ) -> None:
        """A part at a time, so that at most a part is brought here for nothing if a bound is
        met."""
        rest = dict(found)
        for part in parts_of(found):
            missing = {d: holders[0] for d, holders in part.items() if holders[0][0].index != SELF}
            on_own_disk = {
                d: (node, row)
                for d, ((node, row), *_) in part.items()
                if node.index == SELF and not is_resident(row)
            }
            why = await self._prefetch.bring(
                wish.namespace_id, wish.epoch, missing | on_own_disk, learnt_at, until
            )
            digests = list(part)
            statuses, full = self._engine.pin(b"".join(digests), _for_ms(wish), self._bytes_max)
            done.take(digests, statuses, full or why)
            for digest in digests:
                del rest[digest]
            if full:
                done.take(list(rest), bytes([Status.no_space] * len(rest)), "")
                return

    # --- as a holder

    async def serve(self, digests: bytes, for_ms: int, timeout_ms: int) -> tuple[bytes, str]:
        """Pins our pages for a peer: statuses, and why some were refused. Raises ValueError for a
        malformed request."""
        check_digests(digests, DIGESTS_MAX)
        check_seconds(for_ms / 1000)
        return await self.pin_own(digests, for_ms, min(timeout_ms / 1000, self._timeout_s))

    async def pin_own(self, digests: bytes, for_ms: int, left_s: float) -> tuple[bytes, str]:
        if for_ms == 0:
            return self._engine.unpin(digests), ""
        statuses, why = self._engine.pin(digests, for_ms, self._bytes_max)
        absent = [i for i, status in enumerate(statuses) if status == Status.absent]
        if not absent or why:
            return statuses, why
        on_disk = b"".join(digests[DIGEST_BYTES * i :][:DIGEST_BYTES] for i in absent)
        try:
            await self._promotes.serve(on_disk, round(1000 * left_s), False)
        except Unable:
            return statuses, why
        again, why = self._engine.pin(on_disk, for_ms, self._bytes_max)
        merged = bytearray(statuses)
        for i, status in zip(absent, again, strict=True):
            merged[i] = status
        return bytes(merged), why


def answering(records: Holders, done: Pinned, every: bool) -> Holders:
    """Without the suspect holders. A page that only they have is `suspect`; with `every`, so is one
    that they also have."""
    answering: Holders = {}
    for digest, holders in records.items():
        usable = [(node, row) for node, row in holders if not node.suspect]
        if usable:
            answering[digest] = usable
        if not usable or (every and len(usable) < len(holders)):
            done.statuses[digest] = Status.suspect
            silent = (node.address.node_id for node, _ in holders if node.suspect)
            done.why |= {f"{name} does not answer now (suspect)": None for name in silent}
    return answering


def _for_ms(wish: Wish) -> int:
    return max(round(1000 * wish.seconds), 1)


def parts_of(found: Holders) -> Iterator[Mapping[bytes, list[tuple[Node, bytes]]]]:
    part: Holders = {}
    part_bytes = 0
    for digest, holders in found.items():
        length = length_of(holders[0][1])
        if part and (len(part) == PART_PAGES or part_bytes + length > PART_BYTES):
            yield part
            part, part_bytes = {}, 0
        part[digest] = holders
        part_bytes += length
    if part:
        yield part
