"""Drives a removal until it is complete (docs/consistency.md, "A removal").

The node that began the removal asks all members of the newest view that any member named. It
repeats this until each process that may have the page has answered or has ended. Then it tells all
members that the removal is over. If the node dies, another member takes over after a while.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import defaultdict
from collections.abc import Collection, Iterable
from itertools import count, islice
from typing import Any

from peercache_client.status import Status
from peercached.cold.tier import ColdStore
from peercached.component import Component, Stats
from peercached.directory.layout import DIGEST_BYTES
from peercached.directory.placement import Change, Node, Placement
from peercached.health import Say
from peercached.membership import NodeAddress
from peercached.membership.view import join_host_port
from peercached.peer.membership.goodbye import Goodbye
from peercached.peer.removals.calls import NAMED_MAX, RemovalCalls, malformed
from peercached.peer.removals.member import (
    ORPHANED_S,
    Removals,
    id_message,
    process_of,
    remove_request,
)
from peercached.peer.removals.open import Open, split
from peercached.peer.removals.told_owners import ToldByAll
from peercached.peer.removals.vanished_processes import Ended, Found
from peercached.peer.rpc import wire
from peercached.peer.rpc.client import Peers
from peercached.peer.rpc.failure_detector import FailureDetector
from peercached.peer.rpc.tasks import Tasks
from peercached.proto import peer_pb2 as pb
from peercached.removals.ledger import Entry, NamespaceEpoch, RemovalId, Told, Wanted
from peercached.removals.processes import Process
from peercached.removals.sentences import THE_STORE, say_removals
from peercached.timeout import within

log = logging.getLogger(__name__)

OPEN_MAX = 4096
# Backoff between two rounds of an incomplete removal.
PAUSE_FIRST_S = 0.05
PAUSE_MAX_S = 5.0
# Share of the worker's time that is kept for the answer, and its limits: an incomplete removal is
# written to state_dir first, and a busy disk takes a tenth of a second for that.
ANSWER_SHARE = 0.1
ANSWER_MIN_S = 0.04
ANSWER_MAX_S = 0.25
# Seconds between the members that may take over a removal after its driver is gone.
TURN_S = 2.0
ASK_MAX = 64  # questions to drivers under way at a time
# Ended removals kept for each member that may not have heard of the end.
UNTOLD_MAX = 1 << 16
TELL_AGAIN_MAX = 4096


class RemovalDriver(Component):
    """Use it on the event loop's thread. `timeout_s` bounds each call to a member. While this node
    is no member of its cluster, no removal is complete: the members may hold the pages."""

    def __init__(
        self,
        member: Removals,
        placement: Placement,
        peers: Peers,
        failures: FailureDetector,
        timeout_s: float,
        goodbye: Goodbye,
        cold: ColdStore,
    ) -> None:
        self._goodbye = goodbye
        self._member = member
        self._cold = cold
        self._placement = placement
        self._calls = RemovalCalls(failures, timeout_s)
        self._open = member.driven
        self._numbers = count(1)
        self._tasks = Tasks()
        # By incarnation: ended removals that this member may not have heard of, with the answers.
        self._untold: dict[int, dict[RemovalId, tuple[tuple[int, int], ...]]] = {}
        self._telling: asyncio.Task[None] | None = None
        self._told_by_all = ToldByAll(placement, member, self._calls)
        self._asking = 0
        self._ended = Ended(peers, placement, timeout_s)
        self._look_at = float("-inf")

    @property
    def _own(self) -> NodeAddress:
        return self._placement.own.address

    # --- start and end

    def start(self) -> None:
        """Resumes removals that an earlier start left open. Call it before workers can set."""
        for id, wanted in self._member.unsure.items():
            self._drive(Open(id, wanted.digests, time.monotonic(), wanted.epoch))

    async def stop(self) -> None:
        """Leaves open removals to our next start or to another member."""
        await self._tasks.stop()
        await self._told_by_all.stop()

    def view_changed(self, change: Change) -> None:
        del change
        self._told_by_all.keep_only({n.address.incarnation for n in self._placement.nodes.values()})
        for one in self._open.values():
            one.news.set()

    def tend(self, now: float) -> None:
        """Repeats ends that members missed, and takes over removals after their driver is gone.
        Call it a few times a second; `now` is monotonic seconds."""
        if now < self._look_at:
            return
        self._look_at = now + 1.0
        self._member.persist_news()
        if any(self._untold.values()) and (self._telling is None or self._telling.done()):
            self._telling = self._tasks.spawn(self._tell_again())
        others = {node.address.incarnation: node for node in self._placement.others}
        for entry in list(self._member.ledger.running.values()):
            if now <= entry.drive_at or entry.id in self._open:
                continue
            began_at = others.get(entry.id.incarnation)
            if began_at is not None:
                entry.drive_at = now + ORPHANED_S
                if self._asking < ASK_MAX:
                    self._asking += 1
                    self._tasks.spawn(self._ask_who_began(began_at, entry))
            elif not entry.has_turn and (before_us := self._before_us(entry.id, others)):
                entry.drive_at = now + before_us * TURN_S
                entry.has_turn = True
            else:
                self._drive(Open(entry.id, entry.digests, now, entry.epoch))

    async def _ask_who_began(self, node: Node, entry: Entry) -> None:
        """Ends the removal here if its driver completed it while we were out of its view."""
        request = remove_request(entry.id, entry.digests, entry.epoch)
        try:
            reply = await self._calls.call(node, "Remove", request)
        finally:
            self._asking -= 1
        if not isinstance(reply, str) and reply.over:
            # Who else has answered is not known: the driver may have been alone.
            entry.away.update(process.incarnation for process in self._member.processes)
            self._member.over([entry.id], {node.address.incarnation: 0})

    def _before_us(self, id: RemovalId, members: Collection[int]) -> int:
        """How many members may take over before us. The order differs for each removal."""
        own = hash((id.number, self._own.incarnation))
        return sum(hash((id.number, incarnation)) < own for incarnation in members)

    # --- removals

    async def remove(
        self, digests: bytes, left_s: float, epoch: NamespaceEpoch
    ) -> tuple[int, bytes, str]:
        """Removes pages everywhere. Answers within `left_s` seconds, even if the removal goes on.
        Returns (status, digests that were held, explanation). `epoch`: the namespace id, and the
        epoch that the digests are made with. Status `stale`: a clear has raised the epoch since."""
        if self._goodbye.has_left:
            return (
                Status.draining,
                b"",
                "this node has left the cluster: remove the pages at a member",
            )
        if len(self._open) >= OPEN_MAX:
            return Status.error, b"", f"{OPEN_MAX} removals are under way here: try again later"
        id = RemovalId(self._own.incarnation, next(self._numbers))
        one = Open(id, digests, time.monotonic(), epoch, is_waited_for=True)
        one.were_here.update(self._cold.stored(digests))
        task = self._drive(one)
        margin_s = min(max(ANSWER_SHARE * left_s, ANSWER_MIN_S), ANSWER_MAX_S, left_s / 2)
        await asyncio.wait([task], timeout=max(left_s - margin_s, 0.0))
        if one.cleared:
            return Status.stale, b"", ""
        if one.done.is_set():
            return Status.ok, b"".join(one.were_here), ""
        if task.done():  # too many, or it broke
            return Status.error, b"", _why_it_broke(task)
        if not one.missing:
            one.missing = (
                {THE_STORE: one.store_failure or "it has not answered yet"}
                if one.waits_for_store
                else {self._own.node_id: "its time was up"}
            )
        self._member.unsure[one.id] = Wanted(digests, epoch)
        self._member.persist_unsure()
        await self._member.persisted()
        if one.cleared:  # a clear came while we wrote: nobody looks up these digests any more
            return Status.stale, b"", ""
        if one.done.is_set():
            return Status.ok, b"".join(one.were_here), ""
        text = "; ".join(f"{who}: {why}" for who, why in list(one.missing.items())[:NAMED_MAX])
        return (
            (Status.removing if one.kept else Status.error),
            b"".join(one.were_here),
            f"not sure of {text}",
        )

    def _drive(self, one: Open) -> asyncio.Task[None]:
        self._open[one.id] = one
        task = self._tasks.spawn(self._run(one))

        def over(task: asyncio.Task[None]) -> None:
            self._open.pop(one.id, None)
            if not task.cancelled() and (error := task.exception()) is not None:
                log.warning(
                    "this node stopped driving a removal: %s (a member may take it over)", error
                )
            if one.done.is_set() and self._member.unsure.pop(one.id, None) is not None:
                self._member.persist_unsure()

        task.add_done_callback(over)
        return task

    async def _run(self, one: Open) -> None:
        written_down = self._write_down(one)
        try:
            is_complete = await self._rounds(one, written_down)
        finally:
            if written_down is not None:
                written_down.cancel()
        if not is_complete:
            return
        if one.missing:
            log.info(
                "a removal of %d pages is complete after %.1f s",
                len(one.digests) // DIGEST_BYTES,
                time.monotonic() - one.began,
            )
        if one.id in self._member.ledger.running:
            # After a clear nobody finds these digests any more, so nobody misses this removal.
            answered = {} if one.cleared else one.answered | {self._own.incarnation: one.reached}
            ids = [one.id, *self._earlier(one)]
            await asyncio.gather(
                *(self._tell_over(n, ids, answered) for n in self._placement.others)
            )
            self._member.over(ids, answered)
            await self._member.persisted()
        one.done.set()

    async def _rounds(self, one: Open, written_down: asyncio.Task[None] | None) -> bool:
        """Returns whether the removal is complete; if not, the process that began it is back."""
        pause_s = PAUSE_FIRST_S
        asks_again = written_down is not None
        while True:
            is_written = written_down is None or written_down.done()
            if written_down is not None and is_written:
                written_down.result()  # raises if it ended in another way
            if is_written and asks_again:
                # A member may have read the page from the store after its answer. It joined before
                # the record was in force, so all that answer now name a view with it.
                one.carried_out.clear()
                one.answered.clear()
                one.told_in.clear()
                asks_again = False
            is_done = await self._round(one)
            # The worker removes the keys again, and the record of that covers these pages.
            if one.cleared or (is_done and is_written):
                return True
            if is_done and one.store_failure:
                one.missing = {THE_STORE: one.store_failure}
            if any(
                one.id.incarnation == node.address.incarnation for node in self._placement.others
            ):
                return False
            with contextlib.suppress(asyncio.TimeoutError):
                await within(pause_s, one.news.wait())
            one.news.clear()
            pause_s = min(2 * pause_s, PAUSE_MAX_S)

    def _write_down(self, one: Open) -> asyncio.Task[None] | None:
        """Begins to tell the object store of the removal; None: there is no store."""
        if not self._cold.is_on:
            return None

        def failed(why: str) -> None:
            one.store_failure = why

        def over(_: asyncio.Task[None]) -> None:
            one.waits_for_store = False
            one.news.set()

        one.waits_for_store = True
        task = self._tasks.spawn(self._cold.remove(one.digests, one.epoch, failed))
        task.add_done_callback(over)
        return task

    async def _tell_over(self, node: Node, ids: list[RemovalId], answered: dict[int, int]) -> None:
        untold = self._untold.setdefault(node.address.incarnation, {})
        # Above the limit we tell a member only once. If it misses that, it asks us or takes over.
        if len(untold) + len(ids) <= UNTOLD_MAX:
            untold.update(dict.fromkeys(ids, tuple(answered.items())))
        request = pb.EndRemovalsRequest(
            ids=[id_message(id) for id in ids],
            answered=answered.keys(),
            positions=answered.values(),
        )
        if isinstance(await self._calls.call(node, "EndRemovals", request), str):
            return
        for id in ids:
            untold.pop(id, None)

    async def _tell_again(self) -> None:
        """Repeats the ends of removals to members that missed them and still refuse sets."""
        others = {node.address.incarnation: node for node in self._placement.others}
        for gone in self._untold.keys() - others.keys():
            del self._untold[gone]
        calls = []
        for incarnation, untold in self._untold.items():
            alike: dict[tuple[tuple[int, int], ...], list[RemovalId]] = defaultdict(list)
            for id, answered in islice(untold.items(), TELL_AGAIN_MAX):
                alike[answered].append(id)
            calls += [
                self._tell_over(others[incarnation], ids, dict(answered))
                for answered, ids in alike.items()
            ]
        await asyncio.gather(*calls)

    def _earlier(self, one: Open) -> list[RemovalId]:
        """Earlier removals of a subset of these pages that this node drives: this one completes
        them, too."""
        digests = set(split(one.digests))
        return [
            entry.id
            for entry in self._member.ledger.running.values()
            # Compare one digest first: it is cheap, and very many removals may be under way.
            if entry.id in self._open
            and entry.id != one.id
            and entry.digests[:DIGEST_BYTES] in digests
            and entry.since < one.began
            and digests.issuperset(split(entry.digests))
        ]

    async def _round(self, one: Open) -> bool:
        """One attempt. Returns whether the removal is complete; if not, `missing` says why."""
        entry = await self._member.carry_out(one.id, one.digests, one.epoch)
        if entry is None:  # a later removal of the same pages is complete
            return True
        if one.is_waited_for and one.epoch is not None:
            known = self._member.learn(self._own, wire.epoch_messages([one.epoch])[0])
            one.cleared = one.cleared or known > one.epoch[1]
        if one.cleared:
            return True
        one.were_here.update(split(entry.were_here))
        one.kept, one.reached = entry.kept, entry.reached
        if not one.settled:
            one.carried_out.clear()
            one.answered.clear()
            one.told_in.clear()
        missing = {
            member.node_id: "this node has no room for it"
            for member in self._placement.view.members
            if self._placement.find(member.node_id, member.address.incarnation) is None
        }
        if entry.kept:
            own = self._own.incarnation
            one.carried_out.setdefault(own, (entry.reached, time.monotonic()))
            _take_told(one, own, entry.told)
        else:
            missing[self._own.node_id] = "it cannot write the removal to state_dir"
        if why := self._goodbye.why_outside:
            missing[self._own.node_id] = why
        while asked := [
            n for n in self._placement.others if n.address.incarnation not in one.carried_out
        ]:
            if not missing.keys().isdisjoint(n.address.node_id for n in asked):
                break
            replies = await asyncio.gather(*(self._ask(node, one) for node in asked))
            for node, reply in zip(asked, replies, strict=True):
                why = self._take(one, node, reply)
                if one.cleared:
                    return True
                if why:
                    missing[node.address.node_id] = why
        view = self._placement.view.number
        missing |= await self._not_told_yet(one, view)
        one.settled = one.settled or not self._member.owes
        if not one.settled:
            missing |= self._why_all_owe()
        missing |= await self._still_silent(one)
        # Check this last: a member that joined during these calls was not asked.
        if self._placement.view.number != view or view < one.highest_view:
            missing.setdefault(self._own.node_id, "it does not have the newest view yet")
        one.missing = missing or one.missing
        return not missing

    def _take(self, one: Open, node: Node, reply: pb.RemoveReply | str) -> str:
        """Records a member's reply. Returns why the removal is not done there, empty if it is."""
        if isinstance(reply, str):
            return reply
        if one.is_waited_for and one.epoch is not None and reply.epoch > one.epoch[1]:
            later = pb.NamespaceEpoch(namespace_id=one.epoch[0], epoch=reply.epoch)
            try:
                self._member.learn(node.address, later)
            except LookupError as error:
                return str(error)
            except ValueError:
                pass  # the removal ends either way
            one.cleared = True
        one.were_here.update(split(reply.digests))
        is_settled = reply.settled and not self._member.debts.has_debt(node.address)
        one.settled = one.settled or (is_settled and reply.kept)
        one.highest_view = max(one.highest_view, reply.view_number)
        for process in map(process_of, reply.silent):
            one.silent[process.name] = process
        if not reply.kept:
            return "it cannot write the removal to state_dir"
        if why := self._cold.differs(reply.store_marker):
            return why
        if reply.stored:
            return "it still finds the pages in its object store: is that the same one as here?"
        incarnation = node.address.incarnation
        one.carried_out[incarnation] = (reply.position, time.monotonic())
        _take_told(one, incarnation, Told(reply.view_number, reply.untold))
        return ""

    async def _not_told_yet(self, one: Open, view: int) -> dict[str, str]:
        """Members that carried it out but have not told all owners of that view. An owner that came
        back may have old records. A member's answer covers all removals at once."""
        nodes = [
            node
            for node in self._placement.nodes.values()
            if node.address.incarnation in one.carried_out
            and one.told_in.get(node.address.incarnation) != view
        ]
        found = await asyncio.gather(
            *(
                self._told_by_all.by(node, one.carried_out[node.address.incarnation][1], view)
                for node in nodes
            )
        )
        missing = {}
        for node, told in zip(nodes, found, strict=True):
            name = node.address.node_id
            if isinstance(told, str):
                missing[name] = told
                continue
            one.highest_view = max(one.highest_view, told.view)
            _take_told(one, node.address.incarnation, told)
            if told.untold:
                missing[name] = f"it has not told {', '.join(told.untold[:NAMED_MAX])} yet"
            elif told.view < view:
                missing[name] = "it does not have the newest view yet"
        return missing

    def _why_all_owe(self) -> dict[str, str]:
        """If all members owe, nobody could tell a returning node of this removal."""
        if not self._member.absent:
            return {
                self._own.node_id: "it does not know yet which pages were removed while it was away"
            }
        return dict.fromkeys(
            self._member.absent, "it may have been the last to stop, and is not back"
        )

    async def _still_silent(self, one: Open) -> dict[str, str]:
        """Asks twice: while the first hosts were asked, a process asked later may have let in a new
        start of theirs."""
        missing = await self._ask_for_silent(one.silent, one.answered)
        if missing or not one.silent:
            return missing
        processes = self._member.processes
        # Not those that vanish while the others are asked.
        asked = {process.name for process in processes if process.is_silent}
        missing = await self._ask_for_silent(one.silent, one.answered)
        if not missing:
            processes.found_nobody(asked, one.answered)
            self._member.persist_changes()
        return missing

    async def still_silent(self, told: Iterable[pb.NodeAddress]) -> list[str]:
        """Node ids of processes that vanished without a goodbye and may still serve workers. We
        know of them, or members `told` us. Adds a text if this node is no member."""
        silent = {process.name: process for process in map(process_of, told)}
        names = sorted(await self._ask_for_silent(silent, ()))
        if why := self._goodbye.why_outside:
            names.append(f"the members ({self._own.node_id}: {why})")
        return names

    async def _ask_for_silent(
        self, silent: dict[tuple[str, int], Process], answered: Collection[int]
    ) -> dict[str, str]:
        ours = {process.name: process for process in self._member.to_ask_for()}
        silent |= ours
        asked = []
        for name, process in list(silent.items()):
            if process.incarnation in answered or self._is_settled(process, name in ours):
                del silent[name]
            else:
                asked.append(process)
        found = await asyncio.gather(*(self._ended.has_ended(process) for process in asked))
        return {
            process.node_id: "it vanished without a goodbye"
            for process, has_ended in zip(asked, found, strict=True)
            if not has_ended
        }

    def _is_settled(self, process: Process, ours: bool) -> bool:
        """Whether it is asked as a member, or is known to have ended."""
        # A later start with its node key, or at its address, proves the end, also if that start is
        # this node. The member that named the process may be gone, so nobody else would tell us.
        for there in (self._own, *(node.address for node in self._placement.others)):
            is_its_address = (there.host, there.peer_port) == (process.host, process.peer_port)
            is_its_node = process.key and (there.node_id, there.key) == (
                process.node_id,
                process.key,
            )
            if (is_its_address or is_its_node) and there.incarnation >= process.incarnation:
                return True
        return not ours and self._member.processes.find(*process.name) is not None

    async def forget_everywhere(self, node_id: str, listening: bool) -> list[str]:
        """Implements `peercachectl forget`: tells all members that no removal need wait for this
        node. Returns the node ids of members that could not be told. Raises ValueError if the node
        to forget is a member or still takes connections (unless `listening`), or if this daemon has
        never met it."""
        if node_id in self._placement.view.by_id:
            raise ValueError(f"{node_id} is a member: only a node that is gone can be forgotten")
        if not listening and (at := await self._still_at(node_id)):
            raise ValueError(
                f"{node_id} is not gone: something still takes connections at {at}. A daemon that "
                "is frozen would come back with removed pages. End it, and removals go on by "
                "themselves"
            )
        known = self._member.forget(node_id) or any(
            process.node_id == node_id for process in self._member.processes
        )
        if not known:  # nor can it tell whether that node is gone
            raise ValueError(
                f"no node {node_id} was ever in a view with this one: say so at a member that has "
                "met it"
            )
        await self._member.persisted()
        request = pb.ForgetNodeRequest(node_id=node_id)
        others = self._placement.others
        answers = await asyncio.gather(
            *(self._calls.call(n, "ForgetNode", request) for n in others)
        )
        return [
            node.address.node_id
            for node, answer in zip(others, answers, strict=True)
            if isinstance(answer, str)
        ]

    async def _still_at(self, node_id: str) -> str:
        """The address where a process of this node may still run. Empty: none is known to."""
        for process in self._member.to_ask_for():
            if process.node_id == node_id and await self._ended.find(process) is Found.LISTENING:
                return join_host_port(process.host, process.peer_port)
        return ""

    # --- calls

    async def _ask(self, node: Node, one: Open) -> pb.RemoveReply | str:
        request = remove_request(one.id, one.digests, one.epoch)
        request.stored = self._cold.is_on and not one.waits_for_store
        reply: pb.RemoveReply | str = await self._calls.call(node, "Remove", request)
        if isinstance(reply, str):
            return reply
        return malformed(reply) or reply

    # --- for people

    def sections(self, stats: Stats) -> dict[str, Any]:
        return {"removals": self._document(stats)}

    def say(self, say: Say, stats: Stats) -> None:
        say_removals(say, self._document(stats), self._own.node_id)

    def _document(self, stats: Stats) -> dict[str, Any]:
        now = time.monotonic()
        unsure = [one for one in self._open.values() if one.missing]
        return {
            **stats.get("removals", {}),
            **self._member.document(now),
            "unsure": sum(len(one.digests) for one in unsure) // DIGEST_BYTES,
            "unsure_s": max((now - one.began for one in unsure), default=0.0),
            "missing": {who: why for one in unsure for who, why in one.missing.items()},
        }


def _take_told(one: Open, incarnation: int, told: Told) -> None:
    if told.untold:
        return
    one.answered[incarnation] = one.carried_out[incarnation][0]
    one.told_in[incarnation] = max(one.told_in.get(incarnation, 0), told.view)


def _why_it_broke(task: asyncio.Task[None]) -> str:
    error = None if task.cancelled() else task.exception()
    return "this daemon stops" if error is None else str(error)
