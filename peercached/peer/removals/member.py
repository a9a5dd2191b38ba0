"""Removals at a member of the cluster (docs/consistency.md, "A removal").

Carries a removal out, keeps new pages of its keys out until it is over, and remembers who has not
heard of it. Who began it drives it (removal_driver.py). All of this can be done twice.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from peercached.directory.epochs import Epochs
from peercached.directory.layout import DIGEST_BYTES, check_packed, digests_of
from peercached.directory.placement import Placement
from peercached.membership import NodeAddress, View
from peercached.peer.rpc.failures import Unable
from peercached.peer.rpc.tasks import Tasks
from peercached.proto import peer_pb2 as pb
from peercached.removals.ledger import Entry, Ledger, RemovalId, Told
from peercached.removals.lives import HasLeft, Life, Lives
from peercached.removals.store import Remembered, RemovalStore

if TYPE_CHECKING:
    from peercached._native import Engine

DIGESTS_MAX = 1 << 16
# After this somebody else drives a removal on whose node is gone.
ORPHANED_S = 10.0
# Answers that are not sure are written down together.
KEEP_TOGETHER_S = 0.02


class Removals:
    """On the event loop's thread. `publish`: takes rows to the owners; returns, soon enough for an
    answer, the node ids of those that may not know them yet."""

    def __init__(
        self,
        engine: Engine,
        placement: Placement,
        store: RemovalStore,
        publish: Callable[[bytes], Awaitable[list[str]]],
        has_left: HasLeft,
        epochs: Epochs,
    ) -> None:
        self._engine = engine
        self._epochs = epochs
        self._placement = placement
        self._store = store
        self._publish = publish
        self._has_left = has_left
        # What is older than a disk or a pool file says does not know all that was removed.
        remembered = Remembered() if engine.state_is_old else store.load()
        self.is_known = remembered.is_known  # what an earlier start knew
        self.before = remembered.start  # the incarnation of the start before
        self.life = remembered.life
        self.vouches = False  # it has missed no removal (removal_catch_up.py)
        self.lives = Lives(self._own.node_id, remembered.lives)
        # Who may know what was removed since the last start that had missed nothing ended. Empty
        # once this node vouches.
        self.waits_for = remembered.waits_for | self.lives.may_have_outlived_us()
        self.ended_before_us = self.lives.ended()
        self.absent: set[str] = set()  # of those, and of those for whom they wait
        self.holds_back = False  # pages of an earlier start, until it vouches
        self.ledger = Ledger()
        self.unsure = remembered.open  # removals begun here that were not sure when it answered
        self.on_over: Callable[[RemovalId], object] = lambda _: None
        self._carrying: dict[RemovalId, asyncio.Task[Entry]] = {}
        self._tasks = Tasks()
        self._keeping: asyncio.Task[None] | None = None
        self.keep()  # that there was this start

    @property
    def _own(self) -> NodeAddress:
        return self._placement.own.address

    # --- life

    async def stop(self) -> None:
        await self._tasks.stop()

    def set_view(self, view: View) -> None:
        """In force from now on."""
        self.lives.see(view, self._has_left, self.ledger.running_from)
        self.keep_changes()

    def vouch(self) -> None:
        """This node has missed nothing: what it has, and what is set from now on, is of this
        life."""
        self.vouches, self.holds_back = True, False
        if not self.is_known:
            self.has_nothing_of_before()
        self.waits_for, self.absent = set(), set()
        self.life = self._own.incarnation
        self.keep()

    def has_nothing_of_before(self) -> None:
        """Whatever earlier start anybody has met: nothing of it is left."""
        self.before = self._own.incarnation

    def keep(self) -> None:
        # A page or two, written and not synced.
        self.lives.changed = self.lives.has_news = False
        own = self._own.incarnation
        self._store.save(own, self.life, self.waits_for, self.lives, self.unsure)

    async def keep_soon(self) -> None:
        """Returns when what is unsure now is written down: once for all who ask in the meantime."""
        if self._keeping is None:
            self._keeping = self._tasks.spawn(self._keep_in_a_moment())
        await asyncio.shield(self._keeping)

    async def _keep_in_a_moment(self) -> None:
        await asyncio.sleep(KEEP_TOGETHER_S)
        self._keeping = None
        self.keep()

    def keep_changes(self) -> None:
        if self.lives.changed:
            self.keep()

    def keep_news(self) -> None:
        """To be called now and then."""
        if self.lives.has_news:
            self.keep()

    def to_ask_for(self) -> list[Life]:
        """Where somebody may live whom a removal has to wait for."""
        return self.lives.to_ask_for(self._has_left)

    def silent(self) -> list[pb.NodeAddress]:
        """The same, for other members."""
        return [_silent_message(life) for life in self.to_ask_for()]

    # --- removals

    async def carry_out(self, id: RemovalId, digests: bytes) -> Entry | None:
        """None: it is over, as far as this node has been told. Unable: too many are under way."""
        if self.ledger.is_over(id):
            return None
        task = self._carrying.get(id)
        if task is None:
            task = self._tasks.spawn(self._carry_out(id, digests))
            self._carrying[id] = task
            task.add_done_callback(lambda _: self._carrying.pop(id, None))
        return await asyncio.shield(task)

    async def _carry_out(self, id: RemovalId, digests: bytes) -> Entry:
        loop = asyncio.get_running_loop()
        entry = self.ledger.running.get(id)
        if entry is not None and entry.kept:
            return entry
        rows = b""
        if entry is None:
            now = time.monotonic()
            last = self._engine.removals_last
            entry = Entry(id, digests, last + 1, now, drive_at=now + ORPHANED_S)
            self.ledger.running[id] = entry  # before it begins: see Lives.see()
            try:
                rows, entry.kept = await loop.run_in_executor(
                    None, self._engine.begin_removal, digests
                )
            except OverflowError as error:
                self.ledger.running.pop(id, None)
                raise Unable(f"{error} here") from error
            if self.ledger.running.get(id) is entry:
                entry.begun = True
            else:  # it was over before it had begun here
                self._engine.end_removal(digests)
            entry.held = digests_of(rows)
            self.lives.removed(entry.position)
            self.keep_changes()
        else:
            # The pages are gone. Nothing new to write down, but what waits for it.
            rows, entry.kept = await loop.run_in_executor(None, self._engine.remove_local, b"")
        if entry.kept:
            entry.reached = self._engine.removals_last
        # Without rows, too: they may have been evicted a moment ago, and owners not know it yet.
        entry.told = await self.tell(rows)
        return entry

    async def tell(self, rows: bytes = b"") -> Told:
        """Withdrawals, and all that was removed before. Who comes meanwhile, or is back, may have
        something of before: that is for the next call."""
        view = self._placement.view.number
        return Told(view, await self._publish(rows))

    def over(self, ids: list[RemovalId], answered: Mapping[int, int]) -> None:
        """`answered`: by incarnation, the position that its journal has come to."""
        for id in ids:
            entry = self.ledger.end(id)
            if entry is None:
                continue
            self.lives.over(entry.position, answered)
            if entry.begun:
                self._engine.end_removal(entry.digests)
            self.on_over(id)
        self.lives.reach(answered)
        self.keep_changes()

    async def answer(self, caller: NodeAddress, request: pb.RemoveRequest) -> pb.RemoveReply:
        """ValueError, Unable"""
        check_packed(request.digests, DIGEST_BYTES, "digests")
        if not request.digests and not request.HasField("id"):
            told = await self.tell()
            return pb.RemoveReply(view_number=told.view, untold=told.untold)
        id = id_of(request.id)
        if not 0 < len(request.digests) <= DIGESTS_MAX * DIGEST_BYTES:
            raise ValueError(
                f"{len(request.digests) // DIGEST_BYTES} digests in one removal; 1 to {DIGESTS_MAX}"
                " can be"
            )
        # Before the pages are looked for: a clear that this node has missed must not hide them.
        by = f"node {caller.node_id}"
        epoch = self.learn(request.epoch, by) if request.HasField("epoch") else 0
        entry = await self.carry_out(id, request.digests)
        reply = pb.RemoveReply(
            epoch=epoch,
            view_number=self._placement.view.number,
            vouches=self.vouches,
            silent=self.silent(),
        )
        if entry is None:
            reply.kept = reply.over = True
        else:
            reply.digests, reply.kept, reply.position = entry.held, entry.kept, entry.reached
            reply.view_number = entry.told.view
            reply.untold.extend(entry.told.untold)
        return reply

    def learn(self, told: pb.NamespaceEpoch, by: str = "") -> int:
        """The epoch that is in force here now. ValueError, also where there is no room for it."""
        if told.epoch:
            return self._epochs.raise_to(told.namespace_id, told.epoch, by=by)
        return self._epochs.of(told.namespace_id)

    def forget(self, node_id: str) -> int:
        """An operator says that the lives of this node id that went without a word do not come back
        with their pages. How many there were."""
        gone = [life for life in self.to_ask_for() if life.node_id == node_id]
        for life in gone:
            self.lives.forget(life)
        self.waits_for.discard(node_id)
        self.absent.discard(node_id)
        self.keep_changes()
        return len(gone)

    # --- for people

    def document(self, now: float) -> dict[str, Any]:
        running = self.ledger.running.values()
        return {
            "running": sum(len(entry.digests) for entry in running) // DIGEST_BYTES,
            "running_s": max((now - entry.since for entry in running), default=0.0),
            "silent": sorted(life.node_id for life in self.lives.silent(self._has_left)),
            "vouches": self.vouches,
            "held_back_for": sorted(self.absent) if self.holds_back else [],
            "store_problem": self._store.problem,
        }


def split(packed: bytes) -> list[bytes]:
    return [packed[at : at + DIGEST_BYTES] for at in range(0, len(packed), DIGEST_BYTES)]


def id_message(id: RemovalId) -> pb.RemovalId:
    return pb.RemovalId(incarnation=id.incarnation, number=id.number)


def id_of(message: pb.RemovalId) -> RemovalId:
    if message.incarnation == 0 or message.number == 0:
        raise ValueError("a removal without an id")
    return RemovalId(message.incarnation, message.number)


def _silent_message(life: Life) -> pb.NodeAddress:
    return pb.NodeAddress(
        node_id=life.node_id,
        incarnation=life.incarnation,
        host=life.host,
        peer_port=life.peer_port,
        data_port=life.peer_port,
    )
