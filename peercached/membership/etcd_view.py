"""Makes views from the keys in etcd: sans-I/O.

Each node writes its Member to the key `PREFIX/nodes/NODE_ID`, under its lease. The key
`PREFIX/nodes/` itself, under no lease, is the *stamp*: counter and mark of the newest view. When
the keys no longer match the stamp, one node writes the next stamp, and that makes the view. etcd
accepts a stamp only from a node that has seen every key change (compare-and-swap). So all nodes
have the same members under the same number.

Why not number views by etcd's revisions? A new etcd, or one restored from a backup, counts from
the past. And a node that lost its lease writes the same member again: a new revision, hence a
useless resync of everything. The stamp survives both. If a node's view is ahead of etcd, it writes
its own counter. Once all members are back, the stamp matches the view that everybody still has.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

from peercached.membership.timing import Timing
from peercached.membership.view import (
    MARK_BITS,
    MEMBERS_MAX,
    VIEW_NUMBER_MAX,
    Member,
    NodeAddress,
    State,
    View,
    mark_of,
)

# Nodes write the next stamp in turns, so that they do not all write at once. Established nodes
# come in order of node id, TURN_S apart. From rank TURNS_MAX on they share one turn.
TURN_S = 0.25
TURNS_MAX = 8
# Extra delay of a newcomer: established nodes know which members are about to come back.
NEWCOMER_S = 1.0
# A node of another version may read a key differently. Then each overwrites the other's stamp:
# exponential backoff, with this many doublings at most.
DOUBLINGS_MAX = 10


@dataclass(frozen=True, slots=True)
class Stamp:
    """`origin` names the process that wrote the first stamp; later stamps keep it. Another origin
    means that etcd was made anew. Number 0: no stamp."""

    number: int = 0
    origin: str = ""

    @staticmethod
    def of(value: bytes) -> Stamp:
        """A value that does not parse counts as no stamp, so it is overwritten."""
        found = re.fullmatch(rb"(\d{1,12}) ([0-9a-f]{8}) ([!-~]{1,200})", value)
        if found is None:
            return Stamp()
        number = int(found[1]) << MARK_BITS | int(found[2], 16)
        return Stamp(number, found[3].decode()) if number < VIEW_NUMBER_MAX else Stamp()

    @property
    def value(self) -> bytes:
        mark = self.number & ((1 << MARK_BITS) - 1)
        return f"{self.number >> MARK_BITS} {mark:08x} {self.origin}".encode()


class EtcdView:
    """Not thread safe; `now` is monotonic seconds."""

    def __init__(self, own: NodeAddress, timing: Timing) -> None:
        self.view = View.alone(own)  # in use: the newest view that has this process
        self._own = own
        self._timing = timing
        self._members: dict[str, Member] = {}
        self._mark = 0  # of _members
        # Members of our view without a key. Kept incrementally: hundreds of keys may come at once.
        self._missing: set[str] = set()
        self._left: dict[str, int] = {}  # node id -> incarnation, of recent goodbyes
        self._stamp = Stamp()
        self._origin = ""  # of the stamp that made our view
        self._unfit_since: float | None = None  # when the keys began to differ from the stamp
        self._tries = 0  # stamps written for the same keys
        self._patient_until = float("-inf")  # waits for members missing since reset()
        self._return_until = float("-inf")  # waits for keys deleted without a goodbye
        self._is_behind = False  # at reset() etcd had an older view than this node

    def begin_cold(self, remembered: View) -> View:
        """Adopts the view of an earlier start until etcd answers. Its dead members soon become
        suspects, and the first view from etcd drops them."""
        others = [m for m in remembered.members if m.node_id != self._own.node_id]
        view = View.of(0, [*others, Member(self._own)])
        self._go_by(View.numbered(remembered.counter, view))
        return self.view

    def _go_by(self, view: View) -> None:
        self.view = view
        self._missing = {m.node_id for m in view.members if not self._has_now(m)}

    # --- what etcd has

    def reset(self, members: Iterable[Member], stamp: Stamp, now: float) -> None:
        """The keys as just read. Earlier changes are unknown: a member of our view may only be late
        to register again. So for the time of a lease this node makes no view without it."""
        self._members = {member.node_id: member for member in members}
        self._mark = mark_of(self._members.values())
        self._go_by(self.view)
        self._stamp = stamp
        self._tries = 0
        self._unfit_since = now
        self._patient_until = now + self._timing.lease_over_s if self.view.number else now
        other = self._origin not in ("", stamp.origin)
        self._is_behind = other or stamp.number >> MARK_BITS < self.view.counter

    def put(self, member: Member, now: float) -> None:
        self._replace(member.node_id, member, now)

    def delete(self, node_id: str, now: float) -> None:
        """A node that stops says goodbye before its key goes. Without a goodbye, the node may be
        alive with a revoked lease. It gets one heartbeat interval to write its key again, so that
        no view lacks it."""
        old = self._members.get(node_id)
        self._replace(node_id, None, now)
        has_ended = old is None or old.state >= State.LEAVING
        if old is not None and old.state is State.LEFT:
            self.left(node_id, old.address.incarnation)
        # Do not extend a running wait: a steady flow of losses would keep dead nodes in the view.
        if not has_ended and self._return_until <= now:
            self._return_until = now + self._timing.heartbeat_interval_s

    def _replace(self, node_id: str, new: Member | None, now: float) -> None:
        old = self._members.pop(node_id, None)
        if old is not None:
            self._mark ^= mark_of((old,))
        if new is not None:
            self._members[node_id] = new
            self._mark ^= mark_of((new,))
        expected = self.view.member(node_id)
        if expected is None or self._has_now(expected):
            self._missing.discard(node_id)
        else:
            self._missing.add(node_id)
        self._tries = 0
        if self._stamp.number == self.view.number == self.view.counter << MARK_BITS | self._mark:
            self._unfit_since = None  # as before: lost leases were replaced
            self._return_until = float("-inf")
        else:
            self._changed(now)

    def left(self, node_id: str, incarnation: int) -> None:
        """That process has said goodbye."""
        self._left.pop(node_id, None)
        self._left[node_id] = incarnation
        if len(self._left) > MEMBERS_MAX:
            del self._left[next(iter(self._left))]

    def has_left(self, node_id: str, incarnation: int) -> bool:
        """Whether that process has said goodbye."""
        return self._left.get(node_id) == incarnation

    def stamped(self, stamp: Stamp, now: float) -> None:
        self._stamp = stamp
        self._changed(now)

    def _changed(self, now: float) -> None:
        # While members are missing, each new key may be the last. Restart the turns at each, or all
        # nodes would write the stamp at once.
        if self._unfit_since is None or now < self._patient_until:
            self._unfit_since = now

    def member(self, node_id: str) -> Member | None:
        return self._members.get(node_id)

    @property
    def is_without_us(self) -> bool:
        """Whether the others have made a view without this process. False if etcd is at fault: it
        lost its data, or most of the others are missing, too."""
        members = self._there()
        number = View.numbered(self._stamp.number >> MARK_BITS, members).number
        if self._is_behind or not self.view.number < number == self._stamp.number:
            return False
        others = len(self.view.members) - 1
        missing = len(self._missing - {self._own.node_id})
        return not members.has(self._own) and 2 * missing <= others

    def missing(self, now: float) -> list[str]:
        """Node ids of our view that this node waits for. A key of an older incarnation counts as
        missing: it comes from a backup of etcd."""
        return sorted(self._missing) if now < self._patient_until else []

    def _has_now(self, member: Member) -> bool:
        found = self._members.get(member.node_id)
        return found is not None and found.address.incarnation >= member.address.incarnation

    # --- views

    def take(self, now: float) -> View | None:
        """The new view, if stamp and keys match and it is newer than ours."""
        if self._is_behind and self._missing and now < self._patient_until:
            return None  # a newcomer's stamp: it does not know which members will come back
        members = self._there()
        number = View.numbered(self._stamp.number >> MARK_BITS, members).number
        if number != self._stamp.number or number < self.view.number:
            return None
        # Never adopt a view that excludes us: our key comes back.
        if not members.has(self._own):
            return None
        self._unfit_since = None
        self._origin = self._stamp.origin
        if number == self.view.number:
            return None
        self._go_by(View(number, members.members, members.by_id))
        return self.view

    def _is_there(self) -> bool:
        """Whether this process can be in a view of the present keys."""
        if len(self._members) > MEMBERS_MAX:
            return self._there().has(self._own)
        found = self._members.get(self._own.node_id)
        return found is not None and found.address.same_process(self._own)

    def _there(self) -> View:
        ids = sorted(self._members)[:MEMBERS_MAX]  # the same subset on all nodes
        return View.of(0, [self._members[node_id] for node_id in ids])

    def due_at(self, now: float) -> float:
        """When to call take() again, and next_stamp() if keys and stamp still differ; inf: not
        before they change."""
        if self._unfit_since is None or not self._is_there():
            return float("inf")
        since = self._unfit_since
        if self._missing:
            since = max(since, self._patient_until, self._return_until)
        spacing_s = self._timing.view_spacing_s(len(self._members))
        return since + spacing_s * 2.0 ** min(self._tries, DOUBLINGS_MAX) + self._turn_s()

    def _turn_s(self) -> float:
        """Seconds that other nodes have to write the stamp first."""
        lower = (m for i, m in self._members.items() if i < self._own.node_id)
        if self.view.number == 0:
            before = sum(1 for _ in islice(lower, TURNS_MAX))
            return (NEWCOMER_S if self._stamp.number else 0.0) + TURN_S * before
        established = (m for m in lower if self.view.has(m.address))
        return TURN_S * sum(1 for _ in islice(established, TURNS_MAX))

    def next_stamp(self, now: float) -> Stamp:
        """The stamp for the present keys. Write only if our watch is current (compare-and-swap): a
        stamp for outdated keys matches no members, and wastes a view number."""
        self._tries += 1
        self._unfit_since = now
        members = self._there()
        origin = (
            self._origin or self._stamp.origin or f"{self._own.node_id}/{self._own.incarnation}"
        )
        number = View.numbered(
            (max(self.view.number, self._stamp.number) >> MARK_BITS) + 1, members
        ).number
        if members.members == self.view.members and self._stamp.number < self.view.number:
            number = self.view.number  # all are back: restore the view that everybody has
        return Stamp(number, origin)
