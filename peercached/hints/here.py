"""Carries out hints about the pages of this node, for callers here and for peers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from peercache_client.status import Status
from peercached.directory.layout import (
    DIGEST_BYTES,
    SELF,
    check_digests,
    is_resident,
    length_of,
)
from peercached.directory.placement import Node, Placement
from peercached.hints.budget import Budget
from peercached.hints.envelope import DISK, FETCH, FIRST_TO_GO, RETAIN, SECONDS_MAX
from peercached.membership import NodeAddress
from peercached.peer.handover.parts import rows_in
from peercached.peer.pins.pins import Holders, Pinned, Pins, answering, parts_of
from peercached.peer.pins.prefetch import Prefetch
from peercached.peer.rpc.failures import Unable
from peercached.proto import peer_pb2 as pb
from peercached.service.settings import Settings

if TYPE_CHECKING:
    from peercached._native import Engine

DIGESTS_MAX = 4096
# Calls of peers at a time. Each may wait for the network or the disk.
SERVED_MAX = 16
# How long a peer may keep us busy with one call.
SERVE_S_MAX = 30.0
_WRITTEN_LOOK_S = 0.05
_PENDING = 255  # PageStatus::pending in native/common/types.h


@dataclass(frozen=True, slots=True)
class Pages:
    """Pages of one namespace, in one of its epochs."""

    namespace: str
    epoch: int
    digests: Sequence[bytes]


@dataclass(slots=True)
class Done:
    """`statuses`: of each digest, its Status: ok, absent, suspect, no_space (beyond a bound of
    hints) or error."""

    statuses: dict[bytes, int]
    brought_bytes: int = 0
    why: dict[str, None] = field(default_factory=dict)  # sentences, in order

    def take(self, digests: Sequence[bytes], statuses: bytes, why: str = "") -> None:
        self.statuses.update(zip(digests, statuses, strict=True))
        if why:
            self.why[why] = None


@dataclass(eq=False)
class Here:
    """Use it on the event loop's thread."""

    _engine: Engine
    _placement: Placement
    _pins: Pins
    _prefetch: Prefetch
    _settings: Settings
    _budget: Budget

    def __post_init__(self) -> None:
        self._serving = 0

    @property
    def bytes_max(self) -> int:
        """Of pages that hints brought and nobody has used yet, and of those that they retain."""
        config = self._settings.config
        return int(config.hint_share * config.pool_size)

    async def serve(self, caller: NodeAddress, request: pb.HintRequest) -> pb.HintReply:
        """A peer's call. LookupError if the caller is not in our view, ValueError for a malformed
        call, Unable if too many are under way."""
        self._placement.member(caller)
        digests = bytes(request.digests)
        check_digests(digests, DIGESTS_MAX)
        if request.what not in (FETCH, RETAIN, FIRST_TO_GO, DISK):
            raise ValueError(f"a hint to {request.what!r:.80}: this node knows no such thing")
        if request.for_ms > 1000 * SECONDS_MAX:
            raise ValueError(f"a hint for {request.for_ms} ms: at most {SECONDS_MAX} s can be had")
        if self._serving >= SERVED_MAX:
            raise Unable(f"{self._serving} hints of peers are under way already")
        wanted = [digests[i : i + DIGEST_BYTES] for i in range(0, len(digests), DIGEST_BYTES)]
        until = time.monotonic() + min(request.timeout_ms / 1000, SERVE_S_MAX)
        self._serving += 1
        try:
            self._budget.forget(time.monotonic())
            pages = Pages(request.namespace, request.epoch, wanted)
            done = await self.do(request.what, pages, request.for_ms, until)
        finally:
            self._serving -= 1
        statuses = bytes(done.statuses[digest] for digest in wanted)
        return pb.HintReply(
            statuses=statuses, why_not="; ".join(done.why), bytes=done.brought_bytes
        )

    async def do(self, what: str, pages: Pages, for_ms: int, until: float) -> Done:
        """`until`: monotonic seconds."""
        match what:
            case "fetch":
                return await self._fetch(pages, until)
            case "retain":
                return self._retain(pages, for_ms)
            case "disk":
                return await self._to_disk(pages, until)
            case _:
                return self._first_to_go(pages)

    def _id(self, pages: Pages) -> bytes:
        return self._engine.namespace_id(pages.namespace)

    def _retain(self, pages: Pages, for_ms: int) -> Done:
        total = self.bytes_max
        statuses, why = self._engine.retain(
            self._id(pages),
            pages.epoch,
            b"".join(pages.digests),
            max(for_ms, 1),
            total,
            self._budget.part(pages.namespace, total),
        )
        done = Done({})
        done.take(pages.digests, statuses, why)
        if Status.ok in statuses:
            self._budget.hear(pages.namespace, time.monotonic())
        return done

    def _first_to_go(self, pages: Pages) -> Done:
        packed = b"".join(pages.digests)
        done = Done({})
        done.take(pages.digests, self._engine.first_to_go(self._id(pages), pages.epoch, packed))
        return done

    async def _to_disk(self, pages: Pages, until: float) -> Done:
        done = Done({})
        if not self._settings.config.disk_enabled:
            count = len(pages.digests)
            done.take(pages.digests, bytes([Status.error] * count), "this node has no disk tier")
            return done
        namespace_id = self._id(pages)
        left = list(pages.digests)
        write = True
        while left:
            statuses = await asyncio.get_running_loop().run_in_executor(
                None, self._engine.to_disk, namespace_id, pages.epoch, b"".join(left), write
            )
            done.take(left, statuses)
            left = [digest for digest in left if done.statuses[digest] == _PENDING]
            if time.monotonic() + _WRITTEN_LOOK_S >= until:
                break
            write = False
            if left:
                await asyncio.sleep(_WRITTEN_LOOK_S)
        if left:
            why = "some pages were not written in time; they are the first to go"
            done.take(left, bytes([Status.error] * len(left)), why)
        return done

    # --- fetch

    async def _fetch(self, pages: Pages, until: float) -> Done:
        """Brings pages to this pool, within the budget of their namespace."""
        done = Done(dict.fromkeys(pages.digests, int(Status.absent)))
        learnt_at = self._prefetch.changes()
        found = await self._pins.find(list(done.statuses), max(until - time.monotonic(), 0.001))
        silent = Pinned(done.statuses)
        wanted: Holders = {}
        for digest, holders in answering(found, silent, every=False).items():
            node, row = holders[0]
            if node.index == SELF and is_resident(row):
                done.statuses[digest] = Status.ok  # a hint is no use of it
            else:
                wanted[digest] = holders
        done.why |= silent.why
        left = dict.fromkeys(wanted)
        for part in parts_of(wanted):
            for digest in part:
                del left[digest]
            if not await self._fetch_part(pages, dict(part), done, learnt_at, until):
                done.take(list(left), bytes([Status.no_space] * len(left)))
                break
        return done

    async def _fetch_part(
        self, pages: Pages, part: Holders, done: Done, learnt_at: int, until: float
    ) -> bool:
        """Whether the budget allows more."""
        namespace_id, total = self._id(pages), self.bytes_max
        left = self._left(pages, namespace_id, total)
        allowed: dict[bytes, tuple[Node, bytes]] = {}
        for digest, holders in part.items():
            left -= length_of(holders[0][1])
            if left < 0:
                break
            allowed[digest] = holders[0]
        why = ""
        if allowed:
            why = await self._prefetch.bring(namespace_id, pages.epoch, allowed, learnt_at, until)
            packed = b"".join(allowed)
            self._engine.brought_by_hint(namespace_id, pages.epoch, packed)
            here = dict(rows_in(self._engine.local_rows(packed)))
            brought = [row for row in here.values() if is_resident(row)]
            brought_bytes = sum(map(length_of, brought))
            if brought:
                self._budget.spend(pages.namespace, brought_bytes, total, time.monotonic())
            done.brought_bytes += brought_bytes
            for digest in allowed:
                is_here = digest in here and is_resident(here[digest])
                done.statuses[digest] = Status.ok if is_here else Status.error
        if why:
            done.why[why] = None
        refused = [digest for digest in part if digest not in allowed]
        if refused:
            part_bytes = self._budget.part(pages.namespace, total)
            done.take(
                refused,
                bytes([Status.no_space] * len(refused)),
                f"the hints of this namespace may bring {part_bytes} bytes to "
                f"{self._placement.own.address.node_id} now (its part of hint_share)",
            )
        return not refused

    def _left(self, pages: Pages, namespace_id: bytes, total: int) -> int:
        unused = self._engine.unused_hint_bytes(namespace_id, pages.epoch)
        part = self._budget.part(pages.namespace, total)
        return min(part - unused, self._budget.left(pages.namespace, total, time.monotonic()))
