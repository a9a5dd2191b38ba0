"""Removals at a member of the cluster (docs/consistency.md, "A removal").

Carries a removal out, refuses sets of its keys until it is over, and remembers the processes that
may have missed it. The node that began the removal drives it (driver.py). Every step is idempotent.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from peercached.background_writer import BackgroundWriter
from peercached.directory.layout import DIGEST_BYTES, check_packed, digests_of
from peercached.directory.placement import Change, Placement
from peercached.membership import NodeAddress, View
from peercached.membership.view import MEMBERS_MAX
from peercached.news import Event, News
from peercached.peer.directory.own_records import OwnRecords
from peercached.peer.directory.shared_epochs import SharedEpochs
from peercached.peer.membership.cluster import Cluster
from peercached.peer.removals.open import OpenRemovals
from peercached.peer.rpc.failures import Unable
from peercached.peer.rpc.tasks import Tasks
from peercached.proto import peer_pb2 as pb
from peercached.removals.debts import Debts
from peercached.removals.early_ends import EarlyEnds
from peercached.removals.epochs_used import EpochsUsed
from peercached.removals.ledger import Entry, Ledger, NamespaceEpoch, RemovalId, Told
from peercached.removals.processes import Process
from peercached.removals.store import Remembered, RemovalStore

if TYPE_CHECKING:
    from peercached._native import Engine

T = TypeVar("T")

DIGESTS_MAX = 1 << 16
# Calls at a time that may wait for the journal.
THREADS = 8
# Seconds until another member takes over a removal after its driver is gone.
ORPHANED_S = 10.0


@dataclass(frozen=True)
class Forgotten(Event):
    """An operator says, here or elsewhere, that this node does not come back."""

    node_id: str


class Removals:
    """Use it on the event loop's thread. `last_view`: of an earlier start, if membership remembers
    one."""

    def __init__(
        self,
        engine: Engine,
        placement: Placement,
        debts: Debts,
        store: RemovalStore,
        own_records: OwnRecords,
        cluster: Cluster,
        epochs: SharedEpochs,
        last_view: View | None,
        news: News,
    ) -> None:
        self._engine = engine
        self._epochs = epochs
        self._placement = placement
        self._store = store
        self._own_records = own_records
        self._cluster = cluster
        self._news = news
        self.debts = debts
        self.processes = debts.processes
        self.claims = debts.claims
        remembered = debts.remembered
        self.is_known = remembered.is_known  # state_dir knows an earlier start
        self.before = remembered.start  # incarnation of the previous start; 0: none
        self.last_settled = (
            remembered.last_settled
        )  # incarnation of the last start that did not owe; 0: none
        # Our journal's position when `last_settled` ended. Later starts that owed may have added
        # entries.
        is_next = remembered.last_settled == remembered.start
        self.ended_at = engine.removals_last if is_next else remembered.ended_at
        # Of this start before it has heard of any clear that it had missed.
        self.epochs_before = dict(engine.namespace_epochs())
        unknown = remembered.epochs_unknown_upto
        self.epochs_used = EpochsUsed(
            [used for used in remembered.epochs_used if epochs.is_credible(*used)],
            engine.removals_last if unknown is None else unknown,
            engine.removals_last,
        )
        self._owing: set[int] = set()  # indices of members whose pages the engine does not use
        # Node ids that may know removals that we missed since `last_settled` ended. Empty if we owe
        # nobody.
        self.waits_for = remembered.waits_for | self.processes.may_have_outlived_us()
        self.ended_before_us = self.processes.ended()
        if last_view is not None and not (remembered.is_known or debts.is_of_another_cluster):
            # Without its masters' answers this node may begin a cluster alone. It must not then
            # confirm removals while these members serve.
            self.processes.suspect(last_view.members)
        self.absent: set[str] = set()  # nodes that have not answered catch_up.py yet
        self.hides_older = False  # older pages are held back as long as we owe
        self.ledger = Ledger()
        self._early = EarlyEnds()
        self.driven = OpenRemovals()
        # Removals begun here that were incomplete when the worker was answered.
        self.unsure = remembered.open
        self._carrying: dict[RemovalId, asyncio.Task[Entry]] = {}
        self._tasks = Tasks()
        self._threads = ThreadPoolExecutor(THREADS, "removals")
        self._writer = BackgroundWriter(self._state, store.save)
        store.save(self._state())  # record this start

    @property
    def owes(self) -> bool:
        return self.debts.owes

    @property
    def _own(self) -> NodeAddress:
        return self._placement.own.address

    # --- start and end

    async def stop(self) -> None:
        await self._tasks.stop()
        await self.persisted()
        await asyncio.get_running_loop().run_in_executor(
            None, lambda: self._threads.shutdown(wait=True, cancel_futures=True)
        )

    def view_changed(self, change: Change) -> None:
        """Takes the view that is in force from now on."""
        self.processes.see(
            change.view,
            self._cluster.has_left,
            self.ledger.running.values(),
            self._engine.removals_last,
        )
        self._owing -= {node.index for node in (*change.added, *change.removed)}
        self._early.keep_only({node.address.incarnation for node in self._placement.others})
        self._take_over_claims()
        self.persist_changes()

    def owes_nobody(self) -> None:
        """Declares that this node has missed no removal. Its pages belong to this process from now
        on."""
        self.debts.owes = self.hides_older = False
        if not self.is_known:
            self.has_nothing_of_before()
        self.is_known = True
        self.waits_for, self.absent = set(), set()
        self.last_settled, self.ended_at = self._own.incarnation, 0
        self._take_over_claims()
        self._persist()

    def claimed(self, by: NodeAddress, away: Iterable[Process]) -> None:
        """The member `by` says that just these processes owe it."""
        if self.claims.say((by.node_id, by.incarnation), away):
            self.processes.changed = True

    def _take_over_claims(self) -> None:
        """Members that are gone tell nobody any more. A node that starts meets them first."""
        if self.starts:
            return
        nodes = self._placement.nodes.values()
        here = {(node.address.node_id, node.address.incarnation) for node in nodes}
        for process in self.claims.without(here):
            self.processes.owed(process)

    def has_nothing_of_before(self) -> None:
        """No page of an earlier start is left, so other nodes' memory of one no longer matters."""
        self.before = self._own.incarnation

    def persist_unsure(self) -> None:
        """Begins to save `unsure`, which has changed."""
        self._persist()

    def persist_changes(self) -> None:
        """Begins to save what must not be forgotten, and uses no page of a member that owes. Call
        it after each change of `processes`."""
        if self.processes.changed:
            self._persist()
        incarnations = self.debts.debtors()
        nodes = self._placement.nodes.values()
        owing = {node.index for node in nodes if node.address.incarnation in incarnations}
        for index in owing ^ self._owing:
            self._engine.set_owes(index, index in owing)
        self._owing = owing

    def persist_news(self) -> None:
        """Begins to save news that could wait. Call it about once a second."""
        if self.processes.has_news:
            self._persist()

    async def persisted(self) -> None:
        """Returns when all changes until now are saved, or could not be. Nobody may rely on what
        this node knows before that: `kill -9` makes it forget the rest."""
        self.persist_changes()
        await self._writer.done()

    def _persist(self) -> None:
        self.processes.changed = self.processes.has_news = False
        self._writer.changed()

    def _state(self) -> Remembered:
        maybe = self.ledger.may_be_missed(self.driven)
        return Remembered(
            True,
            self._own.incarnation,
            self.last_settled,
            self.ended_at,
            set(self.waits_for),
            [
                replace(
                    process, missed_from=process.missed_from or maybe.get(process.incarnation, 0)
                )
                for process in self.processes
            ],
            dict(self.unsure),
            self.epochs_used.all(),
            self.epochs_used.unknown_upto,
            list(self.claims),
        )

    def to_ask_for(self) -> list[Process]:
        """The processes that a removal has to wait for (processes.py)."""
        return self.processes.to_ask_for(self._cluster.has_left)

    def silent(self) -> list[pb.NodeAddress]:
        """to_ask_for(), as messages for other members."""
        return [address_of(process) for process in self.to_ask_for()]

    def may_come_back(self) -> list[pb.NodeAddress]:
        """Processes that were away, owe and may still run (processes.py), as messages."""
        return [
            address_of(process) for process in self.processes.may_come_back(self._cluster.has_left)
        ]

    @property
    def starts(self) -> bool:
        """Whether this start has never owed nobody: no page of before was served in it."""
        return self.last_settled != self._own.incarnation

    # --- removals

    async def in_thread(self, call: Callable[..., T], *args: Any) -> T:
        """Runs a call that may wait for the journal. It takes no thread of other work: if state_dir
        hangs, only removals do."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, call, *args)

    async def carry_out(
        self, id: RemovalId, digests: bytes, epoch: NamespaceEpoch | None
    ) -> Entry | None:
        """Carries the removal out here, once. `epoch`: that the digests were made with. Returns
        None if we were told that it is over. Raises Unable if too many are under way."""
        if self.ledger.is_over(id):
            return None
        task = self._carrying.get(id)
        if task is None:
            task = self._tasks.spawn(self._carry_out(id, digests, epoch))
            self._carrying[id] = task
            task.add_done_callback(lambda _: self._carrying.pop(id, None))
        return await asyncio.shield(task)

    async def _carry_out(
        self, id: RemovalId, digests: bytes, epoch: NamespaceEpoch | None
    ) -> Entry:
        entry = self.ledger.running.get(id)
        if entry is not None and entry.kept:
            return entry
        rows = b""
        if entry is None:
            now = time.monotonic()
            last = self._engine.removals_last
            entry = Entry(id, digests, last + 1, now, now + ORPHANED_S, epoch)
            if len(self._placement.nodes) > 1:  # else we are the one that is away
                entry.away |= self.processes.away()
            if id not in self.driven and entry.away - self.ledger.may_be_missed(self.driven).keys():
                self.processes.changed = True
            # Enter it first: a process that leaves our view during the removal is owed it
            # (Processes.see).
            try:
                self.ledger.begin(entry)
                rows, entry.kept = await self.in_thread(
                    self._engine.begin_removal, digests, id.mark
                )
            except OverflowError as error:
                self.ledger.withdraw(id)
                raise Unable(f"{error} here") from error
            if self.ledger.running.get(id) is entry:
                entry.begun = True
            else:  # over() came while the engine worked
                self._engine.end_removal(digests)
            entry.were_here = digests_of(rows)
            self.note_epochs([epoch])
            self.persist_changes()
        else:
            # The pages are gone already: only retry the journal write that failed.
            rows, entry.kept = await self.in_thread(self._engine.remove_local, b"")
        if entry.kept:
            entry.reached = self._engine.removals_last
        # Even without rows: a page may have just been evicted, and others may not know that yet.
        entry.told = await self.tell_followers(entry.digests)
        if (answered := self._early.take(id)) is not None:
            self.over([id], answered)
        return entry

    async def tell_followers(self, digests: bytes = b"") -> Told:
        """Waits until no follower names these digests any more; without digests, any page that is
        gone. A member that joins during the call may have old records: the next call covers it.
        A node that gets the view may rely on this node to remember its members, and the removals
        that each of them misses."""
        view = self._placement.view.number
        untold = sorted(await self._own_records.told(digests))
        await self.persisted()
        return Told(view, untold)

    def over(self, ids: list[RemovalId], answered: Mapping[int, int]) -> None:
        """Ends removals and takes sets of their keys again. `answered`: the journal position of
        each member that answered, by incarnation; empty if that is not known. Then the process that
        began them knows who missed them."""
        ended = [entry for id in ids if (entry := self.ledger.end(id)) is not None]
        for entry in ended:
            if answered:
                self.processes.over(entry, answered)
            self.processes.has_news |= bool(entry.away)
            if entry.begun:
                self._engine.end_removal(entry.digests)
            self.driven.completed(entry)
        if ended:
            self.processes.reach(answered)
        self.persist_changes()

    def check_member(self, caller: NodeAddress) -> None:
        """Raises LookupError unless the caller is a member: others may not speak of third nodes."""
        if self._placement.find_process(caller) is None:
            raise LookupError(f"{caller.node_id} is not in our view")

    def told_over(self, caller: NodeAddress, request: pb.EndRemovalsRequest) -> None:
        """Serves an EndRemovals call of a member. Raises ValueError if the request is malformed,
        and LookupError if some of the removals are not the caller's."""
        if len(request.positions) != len(request.answered):
            raise ValueError(
                f"{len(request.positions)} positions of {len(request.answered)} members"
            )
        if len(request.answered) > MEMBERS_MAX:
            raise ValueError(f"{len(request.answered)} members: at most {MEMBERS_MAX} can be")
        answered = dict(zip(request.answered, request.positions, strict=True))
        others, ended, foreign = self._other_members(caller), [], 0
        for id in map(id_of, request.ids):
            is_running = id in self.ledger.running
            if id in self.driven or id.incarnation in others:
                foreign += is_running
            elif is_running:
                ended.append(id)
            elif not self.ledger.is_over(id):
                self._early.note(id, answered, caller.incarnation)
        self.over(ended, answered)
        if foreign:
            raise LookupError(
                f"{foreign} removals are not {caller.node_id}'s to end: the process that "
                "began them is a member, or this node drives them"
            )

    def _other_members(self, caller: NodeAddress) -> set[int]:
        """The incarnations of members but the caller. Each speaks for the removals that it began;
        for those of processes that are gone, any member may."""
        members = (node.address for node in self._placement.nodes.values())
        return {member.incarnation for member in members if not member.same_process(caller)}

    def check(self, request: pb.RemoveRequest) -> RemovalId:
        """Raises ValueError unless all members can carry this removal out."""
        check_packed(request.digests, DIGEST_BYTES, "digests")
        if not 0 < len(request.digests) <= DIGESTS_MAX * DIGEST_BYTES:
            raise ValueError(
                f"{len(request.digests) // DIGEST_BYTES} digests in one removal; 1 to {DIGESTS_MAX}"
                " can be"
            )
        if request.HasField("epoch"):
            self.check_used(request.epoch)
        return id_of(request.id)

    def check_used(self, used: pb.NamespaceEpoch) -> None:
        """Raises ValueError if no removal can have been made in this epoch."""
        if not self._epochs.is_credible(used.namespace_id, used.epoch):
            raise ValueError(
                f"no removal can be made in epoch {used.epoch} of the namespace id "
                f"{used.namespace_id[:DIGEST_BYTES].hex()} ({len(used.namespace_id)} bytes)"
            )

    async def answer(self, caller: NodeAddress, request: pb.RemoveRequest) -> pb.RemoveReply:
        """Serves a Remove call of a member. Raises ValueError if the request is malformed or its
        epoch cannot be taken, Unable if too many removals are in progress here, and LookupError if
        the removal is not the caller's."""
        if not request.digests and not request.HasField("id"):
            told = await self.tell_followers()
            return pb.RemoveReply(view_number=told.view, untold=told.untold)
        id = self.check(request)
        if id.incarnation == self._own.incarnation:  # a member asks how it ended
            return pb.RemoveReply(over=id not in self.driven)
        if id.incarnation in self._other_members(caller):
            raise LookupError(
                f"this removal is not {caller.node_id}'s: the process that began it is a member"
            )
        # Learn the epoch before we look for the pages: a clear that we missed would hide them.
        epoch = self.learn(caller, request.epoch) if request.HasField("epoch") else 0
        entry = await self.carry_out(id, request.digests, epoch_of(request))
        reply = pb.RemoveReply(
            epoch=epoch,
            view_number=self._placement.view.number,
            settled=not self.owes,
            silent=self.silent(),
        )
        if entry is None:  # it was carried out here, and is over
            told, reply.kept, reply.position = (
                await self.tell_followers(),
                True,
                self._engine.removals_last,
            )
        else:
            told, reply.digests = entry.told, entry.were_here
            reply.kept, reply.position = entry.kept, entry.reached
        reply.view_number = told.view
        reply.untold.extend(told.untold)
        return reply

    def note_epochs(self, used: Iterable[NamespaceEpoch | None]) -> None:
        """Removals that we have just carried out were made in these epochs."""
        for one in used:
            if self.epochs_used.note(one, self._engine.removals_last):
                self.processes.changed = True

    def epochs_missed(self, position: int) -> list[NamespaceEpoch] | None:
        """The epochs of removals from that position of our journal on, or the later ones that we
        know now: no process that owes has told us of these. None: not all are known."""
        used = self.epochs_used.since(position)
        return used and [(id, max(epoch, self._epochs.of(id))) for id, epoch in used]

    def learn(self, member: NodeAddress, told: pb.NamespaceEpoch) -> int:
        """Takes the epoch if it is newer. Returns the epoch in force here. Raises ValueError if it
        is malformed or there is no room for it, LookupError if our view lacks that member."""
        return self._epochs.raise_for(member, told.namespace_id, told.epoch)

    def forget(self, node_id: str) -> int:
        """Stops waiting for a node: an operator says that its processes which are away do not come
        back with their pages. Returns how many there were."""
        gone = [
            process for process in self.processes if process.node_id == node_id and not process.here
        ]
        for process in gone:
            self.processes.forget(process)
        self.waits_for.discard(node_id)
        self.absent.discard(node_id)
        self.persist_changes()
        self._news.post(Forgotten(node_id))
        return len(gone)

    # --- for people

    def document(self, now: float) -> dict[str, Any]:
        running = self.ledger.running.values()
        return {
            "running": sum(len(entry.digests) for entry in running) // DIGEST_BYTES,
            "running_s": max((now - entry.since for entry in running), default=0.0),
            "silent": sorted(
                process.node_id for process in self.processes.silent(self._cluster.has_left)
            ),
            "owes": self.owes,
            "held_back_for": sorted(self.absent) if self.hides_older else [],
            "store_problem": self._store.problem,
        }


def id_message(id: RemovalId) -> pb.RemovalId:
    return pb.RemovalId(incarnation=id.incarnation, number=id.number)


def id_of(message: pb.RemovalId) -> RemovalId:
    if message.incarnation == 0 or message.number == 0:
        raise ValueError("a removal without an id")
    return RemovalId(message.incarnation, message.number)


def remove_request(id: RemovalId, digests: bytes, epoch: NamespaceEpoch | None) -> pb.RemoveRequest:
    used = None if epoch is None else pb.NamespaceEpoch(namespace_id=epoch[0], epoch=epoch[1])
    return pb.RemoveRequest(id=id_message(id), digests=digests, epoch=used)


def epoch_of(request: pb.RemoveRequest) -> NamespaceEpoch | None:
    if not request.HasField("epoch"):
        return None
    return (request.epoch.namespace_id, request.epoch.epoch)


def address_of(process: Process) -> pb.NodeAddress:
    return pb.NodeAddress(
        node_id=process.node_id,
        incarnation=process.incarnation,
        host=process.host,
        peer_port=process.peer_port,
        data_port=process.peer_port,
        key=process.key,
    )


def process_of(message: pb.NodeAddress) -> Process:
    return Process(
        message.node_id, message.incarnation, message.host, message.peer_port, key=message.key
    )
