"""Compares journals with the other members, so that no page outlives its removal while away.

A node *owes* when it may have missed removals: since its start, or since a member has told it so. A
member tells every process that owes there (removals/processes.py): in each handshake, and again
until the debt is paid. A node that owes serves nothing of before until it has compared. It asks all
members. Enough is one member that owes nobody and knows since when our process was away: every
removal has such a member's answer. If it answered a removal before our question, its journal tells
us. If it answers later, its view has us, and the removal waits for our answer, too.

When the whole cluster starts, all nodes owe, and no removal is complete until one does not. The
node that ended last owes nobody, if it knew that all others had ended. Otherwise all nodes that may
have ended together are asked: a page that none of them knows as removed was not removed. Until then
pages of before are held back. They are dropped if nobody knows our process.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Collection, Coroutine, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import grpc

from peercached.directory.layout import REMOVED_BYTES, check_packed, mark_of
from peercached.directory.placement import Change, Node, Placement
from peercached.membership import NodeAddress
from peercached.peer.membership.cluster import Cluster
from peercached.peer.removals.member import (
    Removals,
    epoch_of,
    id_of,
    process_of,
    remove_request,
)
from peercached.peer.removals.replies import Answers, Replies
from peercached.peer.rpc import pings, wire
from peercached.peer.rpc.client import PeerLink, Peers
from peercached.peer.rpc.failures import CallFailed, Refused, Unable
from peercached.peer.rpc.tasks import retried
from peercached.proto import peer_pb2 as pb
from peercached.removals.processes import NOT_KNOWN

if TYPE_CHECKING:
    from peercached._native import Engine

log = logging.getLogger(__name__)

ASK_AGAIN_S = 0.1
ASK_AGAIN_MAX_S = 2.0
STEP_PAGES = 4096
POSITION_MAX = (1 << 64) - 1


class RemovalCatchUp:
    """Use it on the event loop's thread."""

    def __init__(
        self,
        engine: Engine,
        placement: Placement,
        peers: Peers,
        removals: Removals,
        timeout_s: float,
        wait_s: float,
        cluster: Cluster,
    ) -> None:
        """`timeout_s` bounds each call, `wait_s` bounds run()."""
        self._cluster = cluster
        # True while the members have not taken us in, or say that we owe, and then until we have
        # asked them. The daemon takes no sets meanwhile: their answers may make us drop pages, and
        # they do not look for pages here.
        self.is_held_out = False
        self._is_held_back = False  # nothing of before is served
        self._is_outside = False  # a member has refused us: its view lacks us
        self._task_again: asyncio.Task[None] | None = None
        self._engine = engine
        self._placement = placement
        self._peers = peers
        self._removals = removals
        self._timeout_s = timeout_s
        self._wait_s = wait_s
        # Our last start that owed nobody, and our journal's position when it ended.
        self._ended, self._ended_at = removals.last_settled, removals.ended_at
        self._state_is_old = False  # another node knows more of our earlier starts than state_dir
        self._is_emptying = False
        self._knew_a_clear = False  # of which members did not know: see _is_ahead
        self._task: asyncio.Task[None] | None = None
        # By node id: processes that have told us, while we ran, that we owe.
        self._creditors: dict[str, NodeAddress] = {}
        # By incarnation: when we told it that we have paid, or serve nothing of before.
        self._confirmed: dict[int, float] = {}
        self._greeted: set[Node] = set()  # members with whom we have compared since they came
        self._talking: dict[Node, asyncio.Task[None]] = {}

    # --- who asks

    async def run(self) -> None:
        """Pays what this start owes. Call it once, when membership has settled. Afterwards it may
        serve: it owes nobody, or holds back pages of before and goes on in the background."""
        if await self._try_until(time.monotonic() + self._wait_s):
            return
        removals = self._removals
        if not self._remembers:
            # _try() would drop them, too. And their positions are of a journal that is gone, so the
            # engine cannot tell which of them are older.
            await self._removals.in_thread(self._engine.drop_all)
        if self.is_needed:
            removals.hides_older = True
            log.warning(
                "older pages are held back and not served: some may have been removed while this "
                "node was down or disconnected, and too few of the nodes that would know have "
                "answered: %s",
                ", ".join(sorted(removals.absent or removals.waits_for)),
            )
        await removals.persisted()
        await self._hide_older()
        self._task = asyncio.ensure_future(self._go_on())

    async def _hide_older(self) -> None:
        await self._removals.in_thread(self._engine.hide_older)
        self._is_held_back = True
        await self._confirm(await self._ask_all())  # nothing of before is served from now on

    async def _hide_older_again(self) -> None:
        """This start has been away. So its newer pages wait for the same answers."""
        self._engine.set_paused(True)
        try:
            await self._hide_older()
            await asyncio.sleep(self._timeout_s)  # or each call of a member would begin this again
        finally:
            self._engine.set_paused(bool(self._creditors))  # a later debt may have begun

    def _begin_again(self) -> None:
        if self._task_again is None or self._task_again.done():
            self._task_again = asyncio.ensure_future(self._hide_older_again())

    def must_compare(self, by: NodeAddress) -> None:
        """A peer says that this node owes. Serves nothing until both have compared."""
        removals = self._removals
        if self._placement.find_process(by) is None and (
            removals.processes.find(by.node_id, by.incarnation) is None
        ):
            return  # it was never a member with us. If it becomes one, it says so again
        confirmed_at = self._confirmed.get(by.incarnation, float("-inf"))
        if time.monotonic() < confirmed_at + self._timeout_s:
            return  # it may have said so before it heard us; if not, it says so again
        if removals.owes and not self._creditors:
            # It starts, and asks all members anyway.
            if self._is_held_back:
                self._begin_again()
            return
        self._creditors[by.node_id] = by
        removals.waits_for.add(by.node_id)
        if removals.owes:
            return
        log.warning(
            "node %s says that this node was away and may have missed removals: it serves no page "
            "until it has asked",
            by.node_id,
        )
        removals.debts.owes = self.is_held_out = True
        self._note_epochs()
        self._engine.set_taking(False)
        self._engine.set_paused(True)
        self._task = asyncio.ensure_future(self._pay())

    def _note_epochs(self) -> None:
        self._removals.epochs_before = dict(self._engine.namespace_epochs())
        self._knew_a_clear = False

    async def _pay(self) -> None:
        until = time.monotonic() + self._wait_s

        async def ask() -> None:
            if not (await self._try_until(until) or self._were_strangers()):
                await self._begin_empty()

        # Until it succeeds, this node owes and serves nothing.
        await retried("asking for missed removals", ask, ASK_AGAIN_MAX_S)
        self._removals.owes_nobody()
        # At once: from here on another member may say that this node owes, which pauses it again.
        self._creditors.clear()
        self.is_held_out = False
        self._engine.set_paused(False)
        await self._removals.persisted()

    def session_begun(self, link: PeerLink) -> None:
        """After each handshake."""
        if link.we_owe and link.identity is not None:
            self.must_compare(link.identity)

    def _were_strangers(self) -> bool:
        """Whether we owe only processes that were never in a view with us. A member soon is."""
        find = self._removals.processes.find
        for who in list(self._creditors.values()):
            if find(who.node_id, who.incarnation) is None:
                self._removals.waits_for.discard(who.node_id)
                del self._creditors[who.node_id]
        return not self._creditors

    async def stop(self) -> None:
        tasks = [
            task
            for task in (self._task, self._task_again, *self._talking.values())
            if task is not None
        ]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def tend(self, now: float) -> None:
        """Tells members that they owe, by any call, and compares with members that this node has
        not compared with since they came. Call it twice a second; `now` is monotonic seconds."""
        del now
        removals, own = self._removals, self._placement.own.address
        self._greeted.intersection_update(self._placement.others)
        for node in self._placement.others:
            if node in self._talking:
                continue
            is_older = node.address.incarnation < own.incarnation
            claims = removals.claims.are_of((node.address.node_id, node.address.incarnation))
            if removals.debts.must_tell(node.address):
                # Any call tells it. Two members may claim each other, so ask such a one as well.
                work = self._ask_for_claims(node) if claims else self._say_that_it_owes(node)
            elif is_older and not removals.owes and node not in self._greeted:
                work = self._greet(node)
            elif claims:
                work = self._ask_for_claims(node)
            else:
                continue
            self._talk(node, work)

    def _talk(self, node: Node, work: Coroutine[Any, Any, None]) -> None:
        self._talking[node] = task = asyncio.ensure_future(work)
        task.add_done_callback(lambda _: self._talking.pop(node))

    def view_changed(self, change: Change) -> None:
        """Call it after Removals has seen the view."""
        if change.added:
            self.tend(0.0)

    async def _say_that_it_owes(self, node: Node) -> None:
        await pings.reaches(self._peers, node.address, self._timeout_s)

    async def _ask_for_claims(self, node: Node) -> None:
        if await self._ask(node):
            self._removals.persist_changes()

    async def _greet(self, node: Node) -> None:
        """Members that were not there when we started have not heard of us yet. If they ran in
        another part of the cluster, each side may have missed removals of the other."""
        self._note_epochs()
        if (reply := await self._ask(node)) is None:
            return
        name = node.address.node_id
        if self._state_is_old:
            await self._begin_empty()
        elif reply.known:
            await self._take({name: reply})
        elif reply.owes and reply.settled:  # it cannot say what we have missed
            return self.must_compare(node.address)
        await self._carry_out_running({name: reply})
        self._accept(node, reply)
        await self._confirm({name: reply})

    def _accept(self, node: Node, reply: pb.MissedRemovalsReply) -> None:
        process = self._removals.processes.find(node.address.node_id, node.address.incarnation)
        if reply.settled and process is not None:
            self._removals.processes.accept(process)
            self._removals.persist_changes()

    async def _go_on(self) -> None:
        ask = partial(self._try_until, float("inf"))
        await retried("asking for missed removals", ask, ASK_AGAIN_MAX_S)
        self._engine.show_older()

    async def _try_until(self, deadline: float) -> bool:
        """Asks again and again until `deadline`. Returns whether this node owes nobody now."""
        pause_s = ASK_AGAIN_S
        while True:
            # Members that have not taken us in refuse. Without answers we would think we are alone.
            if self._cluster.waits:
                self.is_held_out, pause_s = True, ASK_AGAIN_S
            else:
                self._is_outside = False
                if (again := self._task_again) is not None:
                    await asyncio.wait([again])
                replies = await self._ask_all()
                is_paid = await self._try(replies)
                if is_paid:
                    await self._confirm(replies)
                elif self._is_held_back and self._was_away_since(replies):
                    self._begin_again()
                elif self._is_held_back:
                    await self._confirm(replies)
                if self._task_again is not again:
                    continue  # it was away meanwhile, so these answers may lack what it missed
                self.is_held_out = not (is_paid or self._removals.starts)
                if is_paid:
                    self._removals.owes_nobody()
                    self._is_held_back = False
                    await self._removals.persisted()
                    return True
            # A process that was away waits until the members have taken it in again.
            has_time = self._is_outside and not self._removals.starts
            if time.monotonic() >= deadline and not has_time:
                return False
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, ASK_AGAIN_MAX_S)

    def _was_away_since(self, replies: Replies) -> bool:
        """Whether a member that had heard us says that we owe: it means pages of this start."""
        owed = {name for name, reply in replies.items() if reply.owes}
        return any(
            node.address.node_id in owed and node.address.incarnation in self._confirmed
            for node in self._placement.others
        )

    async def _confirm(self, replies: Replies) -> None:
        """Tells the members that we have heard all that they had to tell. From then on they use our
        records, so the owners hear first which pages are gone."""
        await self._removals.tell_followers()  # before this node serves it has none: no wait
        nodes = {node.address.node_id: node for node in self._placement.others}
        confirmed = [(nodes[name], reply) for name, reply in replies.items() if name in nodes]
        await asyncio.gather(*(self._ask(node, heard=reply.reached) for node, reply in confirmed))
        now = time.monotonic()
        for node, _ in confirmed:
            self._confirmed[node.address.incarnation] = now
            self._greeted.add(node)

    async def _try(self, replies: Replies) -> bool:
        remembers = self._remembers
        answers = Answers(
            replies,
            self._removals,
            self._placement.own.address.node_id,
            {node.address.node_id for node in self._placement.others},
            self._creditors,
        )
        if remembers and (found := answers.enough()) is not None:
            await self._take(found)
        elif answers.is_unknown() or not (remembers or answers.others_wait()):
            await self._begin_empty()
        else:
            return False
        try:
            await self._carry_out_running(replies)
        except Unable as error:  # too many at a time: some end soon
            log.info("cannot carry out the removals that are under way: %s", error)
            return False
        return True

    @property
    def _remembers(self) -> bool:
        """Whether state_dir knows our last process, or there is nothing to miss. Without it
        nobody can tell what we missed."""
        if self._state_is_old:
            return False
        return self._removals.is_known or not (self.is_needed or self._engine.removals_last)

    async def _take(self, replies: Replies) -> None:
        """Drops what was removed while we were away."""
        used = {(e.namespace_id, e.epoch) for reply in replies.values() for e in reply.epochs}
        if self._is_ahead(replies):
            await self._begin_empty()
            self._removals.note_epochs(used)
            return
        told = b"".join(reply.removed for reply in replies.values())
        news = set(_rows(await self._removals.in_thread(self._engine.unknown_removals, told)))
        known: defaultdict[bytes, set[str]] = defaultdict(set)  # row -> nodes that know of it
        for node_id, reply in replies.items():
            for row in news.intersection(_rows(reply.removed)):
                known[row].add(node_id)
        alike: defaultdict[frozenset[str], list[bytes]] = defaultdict(list)
        for row, node_ids in known.items():
            alike[frozenset(node_ids)].append(row)
        for told_by, rows in alike.items():
            up_to_date = {process for name in told_by for process in replies[name].up_to_date}
            await self._remove(rows, told_by, up_to_date)
        self._removals.note_epochs(used)

    def _is_ahead(self, replies: Replies) -> bool:
        """Whether we knew of a clear that the members did not know when they removed pages: their
        digests are not those of our pages. Once they hear that we have paid, they learn of it."""
        before = self._removals.epochs_before
        self._knew_a_clear |= any(
            before.get(used.namespace_id, 0) > used.epoch
            for reply in replies.values()
            for used in reply.epochs
        )
        return self._knew_a_clear

    async def _remove(
        self, removed: list[bytes], told_by: Collection[str], up_to_date: Collection[int]
    ) -> None:
        """Carries out removals that our journal lacks, even of pages that were set in this start
        while it waited: nobody knows whether the removal was later."""
        # Processes that are away may have missed them, too. So may members that were away together
        # with us. If one knows a removal, its journal does, and it tells nobody in turn.
        self._removals.processes.removed(
            self._engine.removals_last + 1,
            told_by,
            None if self._removals.starts else up_to_date,
        )
        self._removals.persist_changes()
        log.info(
            "%d pages were removed while this node was down or disconnected: dropping them",
            len(removed),
        )
        for at in range(0, len(removed), STEP_PAGES):
            packed = b"".join(removed[at : at + STEP_PAGES])
            await self._removals.in_thread(self._engine.remove_local, packed)

    async def _begin_empty(self) -> None:
        log.log(
            logging.WARNING if self.is_needed else logging.INFO,
            "dropping all pages: no member knows which of them were removed while this node was "
            "down or disconnected",
        )
        self._is_emptying = True  # until then nobody may rely on what we remember
        try:
            await self._removals.in_thread(self._engine.drop_all)
        finally:
            self._is_emptying = False
        self._removals.has_nothing_of_before()
        self._state_is_old = self._knew_a_clear = False
        self._ended_at = POSITION_MAX
        self._removals.processes.forget_all(self._engine.removals_last)

    async def _carry_out_running(self, replies: Replies) -> None:
        for reply in replies.values():
            for request in reply.running:
                await self._removals.carry_out(
                    id_of(request.id), request.digests, epoch_of(request)
                )

    @property
    def is_needed(self) -> bool:
        """Whether there are pages of an earlier start."""
        stats = self._engine.stats()
        return bool(stats["pool"]["keys"] or ("disk" in stats and stats["disk"]["pages"]))

    async def _ask_all(self) -> Replies:
        others = self._placement.others
        replies = await asyncio.gather(*map(self._ask, others))
        answered = [(n, reply) for n, reply in zip(others, replies, strict=True) if reply]
        if self._removals.starts:
            # What we remember may be of removals that were under way when we were killed.
            processes = self._removals.processes
            clear = processes.up_to_date()
            for node, reply in answered:
                self._accept(node, reply)
                if reply.settled and node.address.incarnation in clear:
                    processes.trust(reply.up_to_date)
        self._removals.persist_changes()
        all_of_them = {node.address.node_id: reply for node, reply in answered}
        self._is_ahead(all_of_them)
        return all_of_them

    async def _ask(self, node: Node, heard: int | None = None) -> pb.MissedRemovalsReply | None:
        """`heard`: a position in that node's journal. We have heard of its removals up to there."""
        link = self._peers.link(node.address.endpoint)
        removals, who = self._removals, node.address
        newest = removals.processes.newest_before(who.node_id, who.incarnation)
        request = pb.MissedRemovalsRequest(
            last_settled=removals.last_settled,
            before=removals.before,
            met=newest,
            met_position=removals.processes.reached_by(who.node_id, newest),
            position=self._ended_at,
            ended=self._ended,
            reached=self._engine.removals_last,
            starts=self._removals.starts,
            heard=heard,
        )
        try:
            reply: pb.MissedRemovalsReply = await link.call(
                "MissedRemovals", request, self._timeout_s, expect=node.address
            )
            check_packed(reply.removed, REMOVED_BYTES, "removed")
            for running in reply.running:
                removals.check(running)
            for away in reply.away:
                wire.address_of(away)
            for used in reply.epochs:
                removals.check_used(used)
        except (CallFailed, ValueError) as error:
            if isinstance(error, Refused) and error.code is grpc.StatusCode.FAILED_PRECONDITION:
                self._is_outside = True
            log.info(
                "cannot get the list of missed removals from %s: %s", node.address.node_id, error
            )
            return None
        removals.claimed(who, map(process_of, reply.away))
        self._compare(who.node_id, reply.met, reply.met_position)
        removals.processes.reach({who.incarnation: reply.reached})
        reached = removals.processes.reached_by(who.node_id, reply.ended)
        if newest > reply.before or reached > reply.position:
            log.warning(
                "%s runs with an old state_dir (restored from a backup?): ignoring its list of "
                "removals",
                who.node_id,
            )
            reply.known = reply.settled = False
        return reply

    def _compare(self, node_id: str, met: int, met_position: int) -> None:
        """`met`: our newest earlier start that this node has met. `met_position`: of our journal,
        as it has heard from our starts up to the last that owed nobody."""
        if self._state_is_old or met >= self._placement.own.address.incarnation:
            return  # a clock or that peer may be wrong
        if met > self._removals.before or met_position > self._ended_at:
            self._state_is_old = True
            log.warning(
                "this node's state_dir is older than its last run (restored from a backup?): node "
                "%s has met a later start of this node, or knows of removals that state_dir lacks",
                node_id,
            )

    # --- who is asked

    async def answer(
        self, caller: NodeAddress, request: pb.MissedRemovalsRequest
    ) -> pb.MissedRemovalsReply:
        """Serves a MissedRemovals call. Raises LookupError if the caller is not in our view yet:
        removals do not wait for it."""
        caller_node = self._placement.find_process(caller)
        if caller_node is None:
            raise LookupError(f"{caller.node_id} is not in our view yet")
        removals, processes = self._removals, self._removals.processes
        # The caller did not know which start was the last that owed nobody.
        is_comparable = request.met <= self._ended
        self._compare(caller.node_id, request.met, request.met_position if is_comparable else 0)
        processes.reach({caller.incarnation: request.reached})
        if not removals.owes and self._state_is_old and not self._is_emptying:
            await self._begin_empty()
        # It may serve after our answer. From then on, our next start must know of it.
        await removals.persisted()
        newest = processes.newest_before(caller.node_id, caller.incarnation)
        reached = processes.reached_by(caller.node_id, request.ended)
        reply = pb.MissedRemovalsReply(
            settled=not removals.owes,
            companions=sorted(removals.waits_for),
            last_settled=removals.last_settled,
            before=removals.before,
            met=newest,
            met_position=reached,
            position=self._ended_at,
            ended=self._ended,
            reached=self._engine.removals_last,
            away=removals.may_come_back(),
            up_to_date=processes.up_to_date(),
        )
        caller_now = processes.find(caller.node_id, caller.incarnation)
        if caller_now is not None and caller_now.is_new and not request.starts:
            self._greeted.discard(caller_node)  # it ran elsewhere: we have missed what it knows
            if caller_node not in self._talking and not removals.owes:
                self._talk(caller_node, self._greet(caller_node))
        if caller_now is not None and request.HasField("heard"):
            processes.heard(caller_now, request.heard, removals.ledger.running.values())
        removals.persist_changes()
        reply.owes = caller_now is None or caller_now.owes
        creditors = removals.claims.creditors_of(request.last_settled)
        if not request.starts:
            reply.companions.extend(sorted(creditors - set(reply.companions)))
        reply.running.extend(running_of(removals))
        is_old = newest > request.before or reached > request.position
        is_unsure = self._state_is_old or self._is_emptying
        process = (
            None if is_old or is_unsure else processes.find(caller.node_id, request.last_settled)
        )
        if process is None or not (process.missed_from or process.was_away or request.starts):
            return reply  # if it was never away from us, it has missed what we have missed
        if creditors and not process.owes:
            return reply  # it has missed what we do not know of
        if process.is_unclear and (request.starts or not process.is_new):
            return reply
        removed: bytes | None = b""
        if process.missed_from:
            removed = await self._since(process.missed_from)
        used = removals.epochs_missed(process.missed_from) if removed else []
        if removed is not None and used is not None:
            reply.known, reply.removed = True, removed
            reply.epochs.extend(wire.epoch_messages(used))
        return reply

    async def _since(self, position: int) -> bytes | None:
        """The rows of removals from that position of our journal on; None: not known. Without
        those under way: nobody has missed them yet, and `running` names them."""
        if position == NOT_KNOWN:
            return None
        running = self._removals.ledger.running
        under_way = {id.mark for id in running}
        removed = await self._removals.in_thread(self._engine.removals_since, position - 1)
        under_way |= {id.mark for id in running}
        return removed and b"".join(row for row in _rows(removed) if mark_of(row) not in under_way)


def running_of(removals: Removals) -> Sequence[pb.RemoveRequest]:
    return [
        remove_request(entry.id, entry.digests, entry.epoch)
        for entry in removals.ledger.running.values()
    ]


def _rows(removed: bytes) -> Iterator[bytes]:
    return (removed[at : at + REMOVED_BYTES] for at in range(0, len(removed), REMOVED_BYTES))
