"""Drain: takes no more sets, hands the warmest pages to peers, and leaves.

This node offers its pages in parts, most recently used first, to one peer after the other. The peer
pulls the pages that it takes and publishes them. Only then do we withdraw our own record.
The page itself stays for READERS_DONE_S, for readers that looked it up before. If we dropped it at
once, a reader could find our stale record at an owner twice, and miss.

A peer that already has a page is offered that page first. A peer that gives no answer is asked
again after a rest, as long as it is a member and the drain has time. A page that nobody took,
for any reason, stays here until this node leaves. In the time that is left, such pages go to the
object store, if there is one.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from peercached.cold.tier import ColdTier
from peercached.component import Component, Stats
from peercached.directory.layout import ROW_BYTES, length_of
from peercached.directory.placement import Node, Placement
from peercached.health import Say
from peercached.peer.directory.own_records import OwnRecords
from peercached.peer.handover.parts import (
    OFFERS_MAX,
    READERS_DONE_S,
    Answer,
    Offers,
    Part,
)
from peercached.peer.handover.report import NO_DRAIN, Progress
from peercached.peer.handover.rests import Rests
from peercached.peer.handover.takers import takers
from peercached.peer.membership.goodbye import Goodbye
from peercached.removals.debts import Debts
from peercached.timeout import within

if TYPE_CHECKING:
    from peercached._native import Engine

log = logging.getLogger(__name__)

SECONDS_MAX = 3600.0
# Pause before we ask a peer again that is busy with other parts, or look for one that rests.
BUSY_S = 0.05
# The longest pause before we ask a peer again that gave no answer.
REST_MAX_S = 4.0
# Poll interval while this node may have missed removals.
ASK_AGAIN_S = 0.05
# Pages dropped in one step.
DROP_PAGES = 4096


@dataclass(frozen=True, slots=True)
class Limits:
    """Raises ValueError for a value out of range."""

    bytes_max: int  # bytes of pages that are handed over at most
    seconds: float
    stay: bool = False  # stay in the cluster afterwards
    disk_stays: bool = False  # this host's disk is there at the next start

    def __post_init__(self) -> None:
        if self.bytes_max < 0:
            raise ValueError(f"a budget of {self.bytes_max} bytes: it cannot be negative")
        if not 0 <= self.seconds <= SECONDS_MAX:
            raise ValueError(f"{self.seconds:g} seconds: between 0 and {SECONDS_MAX:g} can be had")


class Drain(Component):
    """Use it on the event loop's thread."""

    def __init__(
        self,
        engine: Engine,
        placement: Placement,
        offers: Offers,
        own_records: OwnRecords,
        goodbye: Goodbye,
        debts: Debts,
        cold: ColdTier,
    ) -> None:
        self._engine = engine
        self._cold = cold
        self._placement = placement
        self._offers = offers
        self._own_records = own_records
        self._goodbye = goodbye
        self._debts = debts
        self._turns = itertools.count()
        self._withdrawn = bytearray()  # records of pages that peers took
        self._left: set[bytes] = set()  # of the pages within the budget, those that no peer took
        self._out: dict[Node, str] = {}  # peers that take nothing more -> why
        self._silent: dict[Node, str] = {}  # peers that gave no answer lately -> why
        self._rests = Rests(REST_MAX_S)
        self._task: asyncio.Task[None] | None = None
        self._is_undoing = False
        self.progress = Progress()

    @property
    def takes_sets(self) -> bool:
        return self.progress.state == NO_DRAIN

    @property
    def may_move_pages(self) -> bool:
        """Whether single pages may go to peers. While this node owes, a page here may have been
        removed elsewhere unnoticed, and the peer would serve it as its own."""
        return self.takes_sets and not self._debts.owes

    # --- the operator's part

    def start(self, limits: Limits) -> None:
        """Starts the drain; sets are refused from now on. Raises ValueError if the node already
        drains or has left."""
        if self._is_undoing or (self._task is not None and not self._task.done()):
            raise ValueError("it drains already: see peercachectl status")
        if self.progress.state == "left":
            raise ValueError("it has left the cluster: stop it, or restart it to bring it back")
        self._engine.set_taking(False)
        self._left, self._out, self._silent, self._rests = set(), {}, {}, Rests(REST_MAX_S)
        self.progress = Progress.begun(self._engine.stats()["pool"], limits.bytes_max)
        log.warning(
            "drain started: refusing sets, handing pages to peers for at most %g s", limits.seconds
        )
        self._goodbye.announce(True)
        self._task = asyncio.ensure_future(self._run(limits))

    async def undo(self) -> None:
        """Stops the drain and takes sets again. Raises ValueError if the node leaves or has
        left."""
        if self.progress.state in ("leaving", "left"):
            raise ValueError("it has left the cluster: restart the daemon to bring it back")
        self._is_undoing = True
        try:
            await self._undo()
        finally:
            self._is_undoing = False

    async def _undo(self) -> None:
        await self.stop()
        await self._drop_withdrawn()
        self._engine.set_taking(True)
        self._goodbye.announce(False)
        self.progress = Progress()
        log.warning("drain undone: accepting sets again")

    async def before_stop(self, seconds: float) -> None:
        """Hands pages over for about `seconds` at most, because the process is about to end."""
        if self._is_undoing:
            return
        if self._task is None or self._task.done():
            if seconds <= 0 or self.progress.state == "left":
                return
            if not self._takers():
                await self._cold.write_lost(True, seconds)
                return
            pool_bytes = self._engine.stats()["pool"]["capacity_bytes"]
            self.start(Limits(pool_bytes, seconds, stay=True, disk_stays=True))
        assert self._task is not None
        # A drain that an operator began may have more time than we have now.
        await asyncio.wait([self._task], timeout=seconds + 2 * READERS_DONE_S)

    # --- for people

    def sections(self, stats: Stats) -> dict[str, Any]:
        return {"drain": self.progress.document(_refused(stats))}

    def say(self, say: Say, stats: Stats) -> None:
        self.progress.say(say, _refused(stats))

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    # --- the work

    async def _run(self, limits: Limits) -> None:
        progress = self.progress
        ends_at = time.monotonic() + limits.seconds
        # Half of the time is the store's: silent peers would take all of it.
        give_s = limits.seconds / 2 if self._cold.is_on else limits.seconds
        try:
            await within(give_s, self._hand_over(limits.bytes_max))
            progress.end(self._out | self._silent)
        except asyncio.TimeoutError:
            progress.end_late(give_s, self._silent)
        except Exception as error:
            log.exception("pages could not be handed over")
            progress.end_broken(error)
        written = await self._cold.write_lost(limits.disk_stays, ends_at - time.monotonic())
        all_left = bool(self._left) and self._left <= self._cold.stored(self._left)
        progress.stored(*written, all_left)
        log.warning("drain: %s", progress.outcome)
        await asyncio.sleep(READERS_DONE_S)
        await self._drop_withdrawn()
        if limits.stay:
            progress.state = "drained"
            return
        progress.state = "leaving"
        await self._goodbye.leave_for_good()
        progress.state = "left"

    async def _drop_withdrawn(self) -> None:
        step = DROP_PAGES * ROW_BYTES
        while self._withdrawn:
            some = bytes(self._withdrawn[:step])
            await self._own_records.drop(some)
            del self._withdrawn[:step]

    async def _hand_over(self, bytes_max: int) -> None:
        while self._debts.owes:  # noqa: ASYNC110 (it comes with no event)
            await asyncio.sleep(ASK_AGAIN_S)
        loop = asyncio.get_running_loop()
        found, too_large = await loop.run_in_executor(None, self._engine.handovers, bytes_max)
        parts = [Part.of(part) for part in found]
        self.progress.too_large = too_large
        self.progress.offered = sum(len(part.rows) for part in parts)
        self._left = {digest for part in parts for digest in part.rows}
        queue = iter(parts)
        workers = [asyncio.ensure_future(self._work(queue)) for _ in range(OFFERS_MAX)]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()

    async def _work(self, queue: Iterator[Part]) -> None:
        for part in queue:
            if not self._candidates():
                return
            await self._place(part)

    def _candidates(self) -> list[Node]:
        """Peers that may take pages, now or later: a suspect may answer again."""
        nodes, own = self._placement.nodes.values(), self._placement.own
        return [n for n in nodes if n is not own and not n.leaving and n not in self._out]

    def _takers(self) -> list[Node]:
        now = time.monotonic()
        awake = (node for node in self._candidates() if self._rests.is_awake(node, now))
        return takers(awake, self._placement.own, next(self._turns), now)

    async def _place(self, part: Part) -> None:
        left = dict(part.rows)
        for node, rows in (await self._offers.present_elsewhere(part, self._takers())).items():
            await self._offer(node, part, rows, left)
        answered: set[Node] = set()
        while left and not answered.issuperset(self._candidates()):
            for node in self._takers():
                if node not in answered and await self._offer(node, part, left, left):
                    answered.add(node)
            await asyncio.sleep(BUSY_S if left else 0)

    async def _offer(
        self, node: Node, part: Part, rows: Mapping[bytes, bytes], left: dict[bytes, bytes]
    ) -> bool:
        """Offers these pages to `node`. Pages that it takes are withdrawn here and leave `left`.
        False if it gave no answer: it is asked again after a rest.

        A peer that has room and takes less may have had too little time to read the rest. It is
        offered the rest, and half as much of it if it took nothing."""
        most = len(rows)
        while most and node not in self._out:
            wanted = dict(islice(((d, row) for d, row in rows.items() if d in left), most))
            if not wanted:
                return True
            answer = await self._offers.offer(node, part, wanted)
            if answer.busy:
                await asyncio.sleep(BUSY_S)
            elif not await self._takes(node, answer, wanted, left):
                return False
            elif not answer.taken:
                most = min(most, len(wanted)) // 2
        return True

    async def _takes(
        self, node: Node, answer: Answer, wanted: Mapping[bytes, bytes], left: dict[bytes, bytes]
    ) -> bool:
        """False if it was no answer."""
        if answer.failed:
            log.warning(
                "drain: %s gave no answer, will ask again: %s",
                node.address.node_id,
                answer.why_not,
            )
            self._silent[node] = answer.why_not
            self._rests.rest(node, time.monotonic())
            return False
        self._silent.pop(node, None)
        self._rests.end(node)
        if answer.full:
            self._out[node] = answer.why_not
        if answer.taken:
            records = b"".join(wanted[digest] for digest in answer.taken)
            # Note them before we wait: the drain may time out, and they must be dropped even then.
            self._withdrawn += records
            await self._own_records.withdraw(records, False)
        self._left.difference_update(answer.taken)
        for digest in answer.taken:
            row = left.pop(digest, None)
            if row is not None:
                self.progress.handed(length_of(row))
        return True


def _refused(stats: Stats) -> int:
    """Pages that this node refused to take in sets because of the drain."""
    return int(stats.get("operations", {}).get("set", {}).get("draining", 0))
