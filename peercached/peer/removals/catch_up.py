"""Learns at start which pages were removed while this node was away, before it serves old pages.

A member *vouches* if it has missed no removal. For each life (removals/lives.py) that was in a view
with it, it knows the first position in its own journal that this life may have missed. One
vouching member is enough, because every removal needs its answer. If it answered a removal before
our question, its journal tells us. If it answers later, its view has us, and the removal waits for
our answer, too.

When the whole cluster starts, nobody vouches, and no removal is complete until a node does. The
node that ended last vouches at once, if it knew that all others had ended. Otherwise all nodes that
may have ended together are asked: a page that none of them knows as removed was not removed. Until
then pages of earlier starts are held back. They are dropped if nobody knows our earlier life.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from peercached.directory.layout import DIGEST_BYTES, check_packed
from peercached.directory.placement import Node, Placement
from peercached.membership import NodeAddress
from peercached.peer.removals.member import Removals, id_message, id_of
from peercached.peer.rpc.client import Peers
from peercached.peer.rpc.failures import CallFailed
from peercached.proto import peer_pb2 as pb
from peercached.removals.lives import NODES_MAX, NOT_KNOWN

if TYPE_CHECKING:
    from peercached._native import Engine

log = logging.getLogger(__name__)

ASK_AGAIN_S = 0.1
ASK_AGAIN_MAX_S = 2.0
STEP_DIGESTS = 4096
# A starting node asks us within so many seconds. Any other node new in our view was cut off.
COMPARE_AFTER_S = 5.0


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
        on_release: Callable[[], None],
        waits: Callable[[], str],
    ) -> None:
        """`timeout_s` bounds each call, `wait_s` bounds run(). `on_release` is called when held
        pages can be found again. `waits` is Cluster.waits (peer/membership/cluster.py)."""
        self._waits = waits
        # True while the members have not taken us in, and then until we have asked them. The
        # daemon takes no sets meanwhile, because their answers may make us drop pages.
        self.is_held_out = False
        self._engine = engine
        self._placement = placement
        self._peers = peers
        self._removals = removals
        self._timeout_s = timeout_s
        self._wait_s = wait_s
        self._on_release = on_release
        self._began_at = engine.removals_last  # our journal's position at this start
        # Our newest earlier start that any node has met, and our journal's position then.
        self._met_us = (0, 0)
        self._task: asyncio.Task[None] | None = None
        # By node id: the last process that we have asked, or that has asked us when it started. If
        # it leaves our view and comes back, it is another Node.
        self._compared: dict[str, Node] = {}
        self._comparing: asyncio.Task[None] | None = None
        self._compare_at = float("-inf")

    # --- who asks

    async def run(self) -> None:
        """Call it once, when membership has settled. Afterwards this node may serve: it vouches, or
        it holds back pages of earlier starts and goes on asking in the background."""
        if await self._try_until(time.monotonic() + self._wait_s):
            return
        removals = self._removals
        if self.is_needed:
            removals.holds_back = True
            log.warning(
                "pages from before the restart are held back and not served: some may have been "
                "removed meanwhile, and too few of the nodes that would know have answered: %s",
                ", ".join(sorted(removals.absent or removals.waits_for)),
            )
        await removals.kept()
        await asyncio.get_running_loop().run_in_executor(None, self._engine.hold_back)
        self._task = asyncio.ensure_future(self._go_on())

    async def stop(self) -> None:
        tasks = [task for task in (self._task, self._comparing) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def tend(self, now: float) -> None:
        """Compares known starts with nodes that came back into view. A node with a state_dir from a
        backup may have vouched while it was cut off, or an operator may have forgotten us. Call it
        often; `now` is monotonic seconds."""
        if not self._removals.vouches or now < self._compare_at:
            return
        self._compare_at = now + ASK_AGAIN_MAX_S
        new = [
            node
            for node in self._others()
            if not self._has_compared(node) and now - node.since > COMPARE_AFTER_S
        ]
        if new:
            self._comparing = asyncio.ensure_future(self._compare_with(new))

    async def _compare_with(self, nodes: list[Node]) -> None:
        replies = await asyncio.gather(*(self._ask(node, 0, starts=False) for node in nodes))
        await self._drop_if_old()
        for node, reply in zip(nodes, replies, strict=True):
            if reply is not None:
                await self._remove(reply.digests, node.address.node_id)

    @property
    def vouches(self) -> bool:
        """Whether this node has missed no removal. It is not sure while a node is back of which it
        was cut off, because that one may have stopped waiting for us."""
        return self._removals.vouches and not any(
            (known := self._compared.get(node.address.node_id)) is not None
            and known is not node
            and known.address.incarnation == node.address.incarnation
            for node in self._others()
        )

    def _has_compared(self, node: Node) -> bool:
        return self._compared.get(node.address.node_id) is node

    def _note_compared(self, node: Node) -> None:
        self._compared.pop(node.address.node_id, None)
        self._compared[node.address.node_id] = node
        if len(self._compared) > NODES_MAX:
            del self._compared[next(iter(self._compared))]

    async def _drop_if_old(self) -> None:
        if self._removals.vouches and self._state_is_old:
            await self._begin_empty({})

    async def _go_on(self) -> None:
        await self._try_until(float("inf"))
        self._engine.release_held()
        self._on_release()

    async def _try_until(self, deadline: float) -> bool:
        """Asks again and again until `deadline`. Returns whether this node vouches now."""
        pause_s = ASK_AGAIN_S
        while True:
            # Members that have not taken us in refuse. Without answers we would think we are alone.
            if self._waits():
                self.is_held_out, pause_s = True, ASK_AGAIN_S
            else:
                vouches = await self._try(await self._ask_all())
                self.is_held_out = False
                if vouches:
                    self._removals.vouch()
                    await self._removals.kept()
                    return True
            if time.monotonic() >= deadline:
                return False
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, ASK_AGAIN_MAX_S)

    async def _try(self, replies: dict[str, pb.MissedRemovalsReply]) -> bool:
        remembers = self._remembers
        if remembers and (found := self._enough(replies)) is not None:
            for node_id, reply in found.items():
                await self._take(node_id, reply)
        elif self._is_unknown(replies) or not (remembers or self._others_wait(replies)):
            await self._begin_empty(replies)
        else:
            return False
        return True

    @property
    def _state_is_old(self) -> bool:
        """Whether another node has met a later start of ours, or a higher position of our journal,
        than state_dir knows."""
        return self._met_us > (self._removals.before, self._began_at)

    @property
    def _remembers(self) -> bool:
        """Whether state_dir knows our last life, or there is nothing to miss. Without that life
        nobody can tell what we missed."""
        if self._state_is_old:
            return False
        return self._removals.is_known or not (self.is_needed or self._engine.removals_last)

    def _enough(
        self, replies: dict[str, pb.MissedRemovalsReply]
    ) -> dict[str, pb.MissedRemovalsReply] | None:
        """The replies that together tell what we missed; None if they do not suffice yet."""
        vouching = {node_id: reply for node_id, reply in replies.items() if reply.vouches}
        if vouching:
            known = ({named[0]: named[1]} for named in vouching.items() if named[1].known)
            return next(known, None)
        if self._removals.life == 0 and self._others_wait(replies):
            return None
        together = self._who_ended_together(replies)
        if together is None or not all(self._had_our_life(*named) for named in together.items()):
            return None
        return {node_id: reply for node_id, reply in together.items() if reply.known}

    def _who_ended_together(
        self, replies: dict[str, pb.MissedRemovalsReply]
    ) -> dict[str, pb.MissedRemovalsReply] | None:
        """Replies of the nodes that may have outlived us, of the nodes that may have outlived
        those, and so on. None if one of them has not answered; sets Removals.absent."""
        own_id = self._placement.own.address.node_id
        together: dict[str, pb.MissedRemovalsReply] = {}
        absent: set[str] = set()
        waiting = set(self._removals.waits_for)
        while waiting:
            node_id = waiting.pop()
            if (reply := replies.get(node_id)) is None:
                absent.add(node_id)
                continue
            together[node_id] = reply
            waiting |= set(reply.companions) - together.keys() - absent - {own_id}
        self._removals.absent = absent
        return None if absent else together

    def _had_our_life(self, node_id: str, reply: pb.MissedRemovalsReply) -> bool:
        """Whether that node can tell what we missed, or ended before us."""
        return reply.known or (node_id, reply.life) in self._removals.ended_before_us

    @staticmethod
    def _others_wait(replies: dict[str, pb.MissedRemovalsReply]) -> bool:
        """Whether other nodes wait for companions of their last life. A new node must not vouch
        before them: it knows none of their lives, so they would drop their pages."""
        return any(reply.companions for reply in replies.values())

    def _is_unknown(self, replies: dict[str, pb.MissedRemovalsReply]) -> bool:
        """Whether no vouching member and no node that ended with us can tell what we missed."""
        vouching = [reply for reply in replies.values() if reply.vouches]
        if any(reply.known for reply in vouching):
            return False
        if not vouching:
            together = self._who_ended_together(replies)
            return together is not None and not all(
                self._had_our_life(*named) for named in together.items()
            )
        others = {node.address.node_id for node in self._others()}
        return others <= replies.keys() or self._removals.life == 0

    async def _take(self, node_id: str, reply: pb.MissedRemovalsReply) -> None:
        await self._remove(reply.digests, node_id)
        for request in reply.running:
            await self._removals.carry_out(id_of(request.id), request.digests)

    async def _remove(self, digests: bytes, told_by: str) -> None:
        """Removes these pages, even if they were set in this start while it waited: nobody knows
        whether the removal was later."""
        loop = asyncio.get_running_loop()
        if digests:
            # Lives that were away longer than we were may have missed these removals, too.
            self._removals.lives.removed(self._engine.removals_last + 1, told_by)
            log.info(
                "%d pages were removed while this node was down or disconnected: dropping them",
                len(digests) // DIGEST_BYTES,
            )
        step = STEP_DIGESTS * DIGEST_BYTES
        for at in range(0, len(digests), step):
            await loop.run_in_executor(None, self._engine.remove_local, digests[at : at + step])

    async def _begin_empty(self, replies: dict[str, pb.MissedRemovalsReply]) -> None:
        if self.is_needed:
            log.warning(
                "dropping all pages: no member knows which of them were removed while this node "
                "was down or disconnected"
            )
        self._removals.lives.forget_all()
        self._removals.has_nothing_of_before()
        await asyncio.get_running_loop().run_in_executor(None, self._engine.drop_all)
        for reply in replies.values():
            for request in reply.running:
                await self._removals.carry_out(id_of(request.id), request.digests)

    @property
    def is_needed(self) -> bool:
        """Whether there are pages of an earlier start."""
        stats = self._engine.stats()
        return bool(stats["pool"]["keys"] or ("disk" in stats and stats["disk"]["pages"]))

    def _others(self) -> list[Node]:
        own = self._placement.own
        return [node for node in self._placement.nodes.values() if node is not own]

    async def _ask_all(self) -> dict[str, pb.MissedRemovalsReply]:
        others = self._others()
        life = self._removals.life
        replies = await asyncio.gather(*(self._ask(node, life, starts=True) for node in others))
        return {
            node.address.node_id: reply
            for node, reply in zip(others, replies, strict=True)
            if reply is not None
        }

    async def _ask(self, node: Node, life: int, starts: bool) -> pb.MissedRemovalsReply | None:
        link = self._peers.link(node.address.endpoint)
        removals, who = self._removals, node.address
        met = removals.lives.newest_before(who.node_id, who.incarnation)
        request = pb.MissedRemovalsRequest(
            life=life,
            before=removals.before,
            met=met[0],
            met_position=met[1],
            position=self._began_at,
            reached=self._engine.removals_last,
            starts=starts,
        )
        try:
            reply: pb.MissedRemovalsReply = await link.call(
                "MissedRemovals", request, self._timeout_s, expect=node.address
            )
            check_packed(reply.digests, DIGEST_BYTES, "digests")
            for running in reply.running:
                check_packed(running.digests, DIGEST_BYTES, "digests")
                id_of(running.id)
        except (CallFailed, ValueError) as error:
            log.info(
                "cannot get the list of missed removals from %s: %s", node.address.node_id, error
            )
            return None
        self._note_compared(node)
        self._compare(who.node_id, (reply.met, reply.met_position))
        removals.lives.reach({who.incarnation: reply.reached})
        if met > (reply.before, reply.position):
            log.warning(
                "%s runs with an old state_dir (restored from a backup?): ignoring its list of "
                "removals",
                who.node_id,
            )
            reply.known = reply.vouches = False
        return reply

    def _compare(self, node_id: str, met: tuple[int, int]) -> None:
        if met[0] >= self._placement.own.address.incarnation:
            return  # not an earlier start of ours: a clock or that peer is wrong
        knew = self._state_is_old
        self._met_us = max(self._met_us, met)
        if self._state_is_old and not knew:
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
        node = self._placement.find_process(caller)
        if node is None:
            raise LookupError(f"{caller.node_id} is not in our view yet")
        # Else we ask it, too: both may have been cut off, and each knows what the other missed.
        if request.starts:
            self._note_compared(node)
        removals = self._removals
        self._compare(caller.node_id, (request.met, request.met_position))
        removals.lives.reach({caller.incarnation: request.reached})
        await self._drop_if_old()
        # It may serve after our answer. From then on, our next start must know of it.
        await removals.kept()
        met = removals.lives.newest_before(caller.node_id, caller.incarnation)
        known = removals.lives.find(caller.node_id, request.life)
        if known is not None and known.owed_from == NOT_KNOWN:
            known = None
        if self._state_is_old or met > (request.before, request.position):
            known = None
        reply = pb.MissedRemovalsReply(
            vouches=removals.vouches,
            companions=sorted(removals.waits_for),
            life=removals.life,
            before=removals.before,
            met=met[0],
            met_position=met[1],
            position=self._began_at,
            reached=self._engine.removals_last,
            running=running_of(removals),
        )
        if known is None:
            reply.digests = await self._missed_while_forgotten(caller)
            return reply
        digests: bytes | None = b""
        if known.owed_from:
            loop = asyncio.get_running_loop()
            digests = await loop.run_in_executor(
                None, self._engine.removals_since, known.owed_from - 1
            )
        if digests is not None:
            reply.known, reply.digests = True, digests
        return reply

    async def _missed_while_forgotten(self, caller: NodeAddress) -> bytes:
        """Pages that were removed while an operator had forgotten the caller, which was only cut
        off. It must drop them, or they would be found again."""
        owed_from = self._removals.lives.returned(caller.node_id, caller.incarnation)
        if owed_from in (0, NOT_KNOWN):
            return b""
        log.warning(
            "node %s is back, although an operator had forgotten it: telling it what was removed "
            "meanwhile. Forget only nodes whose host is off or gone",
            caller.node_id,
        )
        loop = asyncio.get_running_loop()
        digests = await loop.run_in_executor(None, self._engine.removals_since, owed_from - 1)
        return digests or b""


def running_of(removals: Removals) -> Sequence[pb.RemoveRequest]:
    return [
        pb.RemoveRequest(id=id_message(entry.id), digests=entry.digests)
        for entry in removals.ledger.running.values()
    ]
