"""Sums up the members' answers to a node that owes (catch_up.py)."""

from __future__ import annotations

from collections.abc import Collection

from peercached.peer.removals.member import Removals
from peercached.proto import peer_pb2 as pb

Replies = dict[str, pb.MissedRemovalsReply]  # by node id


class Answers:
    """`members`: the node ids in our view but ours. `creditors`: those that told us, while we ran,
    that we owe."""

    def __init__(
        self,
        replies: Replies,
        removals: Removals,
        own_id: str,
        members: Collection[str],
        creditors: Collection[str],
    ) -> None:
        self._replies = replies
        self._removals = removals
        self._own_id = own_id
        self._members = set(members)
        self._creditors = set(creditors)
        self._settled = [reply for reply in replies.values() if reply.settled]

    def enough(self) -> Replies | None:
        """The replies that together tell what we missed; None if they do not suffice yet."""
        if not self._members & self._creditors <= self._replies.keys():
            return None
        if any(map(self._is_enough, self._settled)):
            return _known(self._replies)
        if self._removals.starts and self._settled:
            return None
        if self._removals.last_settled == 0 and self.others_wait():
            return None
        together = self._who_ended_together()
        return None if together is None or not self._had_our_life(together) else _known(together)

    def is_unknown(self) -> bool:
        """Whether no settled member and no node that ended with us can tell what we missed."""
        if any(map(self._is_enough, self._settled)):
            return False
        have_all = self._members | self._creditors <= self._replies.keys()
        if self._removals.starts and self._settled:
            return have_all or self._removals.last_settled == 0
        if not (self._removals.starts or have_all):
            return False
        together = self._who_ended_together()
        return together is not None and not self._had_our_life(together)

    def _is_enough(self, reply: pb.MissedRemovalsReply) -> bool:
        """Whether this member, which is settled, can tell alone. If we were told that we owe, one
        that saw us miss nothing may not know of that debt."""
        return reply.known and (self._removals.starts or reply.owes)

    def others_wait(self) -> bool:
        """Whether other nodes wait for companions of their last process. A new node must not be
        settled before them: it knows none of their processes, so they would drop their pages."""
        return any(reply.companions for reply in self._replies.values())

    def _who_ended_together(self) -> Replies | None:
        """Replies of the nodes that may have outlived us, of the nodes that may have outlived
        those, and so on. Or, if we were told that we owe, of those that told us, and of those that
        we owe as they say. None if one of them has not answered; sets Removals.absent."""
        together: Replies = {}
        absent: set[str] = set()
        waiting = set(self._removals.waits_for)
        while waiting:
            node_id = waiting.pop()
            if (reply := self._replies.get(node_id)) is None:
                absent.add(node_id)
                continue
            together[node_id] = reply
            waiting |= set(reply.companions) - together.keys() - absent - {self._own_id}
        self._removals.absent = absent
        return None if absent else together

    def _had_our_life(self, replies: Replies) -> bool:
        """Whether all these nodes can tell what we missed, or ended before us. If we were told that
        we owe, some may have heard meanwhile that we have paid."""
        if not self._removals.starts:
            told = (*replies.values(), *self._settled)
            return all(reply.known or not reply.owes for reply in told)
        return all(
            reply.known or (node_id, reply.last_settled) in self._removals.ended_before_us
            for node_id, reply in replies.items()
        )


def _known(replies: Replies) -> Replies:
    return {node_id: reply for node_id, reply in replies.items() if reply.known}
