"""From the keys in etcd to views: sans-I/O.

Each node has a key `PREFIX/nodes/NODE_ID`, under its lease, with its Member as value. The key
`PREFIX/nodes/` itself, under no lease, is the stamp: counter and mark of the newest view. Members
that the stamp does not fit become a view when somebody has put the next stamp, which etcd takes
only of a node that knows all keys. So all nodes have the same members under the same number,
whenever they came and whatever they saw.

etcd's own revisions would not do. An etcd that was made anew or restored from a backup counts from
the past, and a key that is put again with the same member, because a lease was lost, would be a new
number for the same members: a resync of everything for nothing. With the stamp the nodes' views are
above etcd's: whoever is ahead of it puts its own counter, and members that are all there again are
the view that everybody has still.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

from peercached.membership.office import VIEW_SPACING_PER_MEMBER_S, VIEW_SPACING_S
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

# One node is to put the next stamp, not all at once: the established ones in order, each so much
# after the one before; from this many on all together.
TURN_S = 0.25
TURNS_MAX = 8
# A newcomer leaves it to them for so long, as they know who else is about to come back.
NEWCOMER_S = 1.0
# Who reads a key differently from us (another version) puts its stamp over ours, and we ours over
# its: each time after twice as long.
DOUBLINGS_MAX = 10


@dataclass(frozen=True, slots=True)
class Stamp:
    """`origin`: which node's start put the first stamp, kept by all that follow. With another one,
    etcd was made anew. Number 0: there is none."""

    number: int = 0
    origin: str = ""

    @staticmethod
    def of(value: bytes) -> Stamp:
        """What is no stamp is put anew."""
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
        self.view = View.alone(own)  # what this node goes by: the newest that has this process
        self._own = own
        self._timing = timing
        self._members: dict[str, Member] = {}
        self._mark = 0  # of all of them
        self._missing: set[str] = set()  # of our view, kept up: hundreds may come at once
        self._left: dict[str, int] = {}  # node id -> incarnation, of those who said so lately
        self._stamp = Stamp()
        self._origin = ""  # of the stamp that made our view
        self._unfit_since: float | None = None  # when the keys began to differ from the stamp
        self._tries = 0  # stamps put for the same keys
        self._patient_until = float("-inf")  # for who has been missing since the keys were read
        self._return_until = float("-inf")  # for who has gone without a word
        self._is_behind = False  # etcd knew less than this node when that came to it

    def begin_cold(self, remembered: View) -> View:
        """Goes by the view of an earlier start until etcd can be asked. Members of it that do
        not run any more are suspects, not members for long."""
        others = [m for m in remembered.members if m.node_id != self._own.node_id]
        view = View.of(0, [*others, Member(self._own)])
        self._go_by(View.numbered(remembered.counter, view))
        return self.view

    def _go_by(self, view: View) -> None:
        self.view = view
        self._missing = {m.node_id for m in view.members if not self._has_now(m)}

    # --- what etcd has

    def reset(self, members: Iterable[Member], stamp: Stamp, now: float) -> None:
        """What the keys hold now. Nobody knows what has happened to them before: for the time of
        a lease this node makes no view without one who is in its own and may just not be back."""
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
        """Who ends says so first. A live node whose lease was revoked puts its key again, and is to
        be in all views: it has a heartbeat's time for it. A dead one was silent for longer."""
        old = self._members.get(node_id)
        self._replace(node_id, None, now)
        has_ended = old is None or old.state >= State.LEAVING
        if old is not None and old.state is State.LEFT:
            self._left[node_id] = old.address.incarnation
            if len(self._left) > MEMBERS_MAX:
                del self._left[next(iter(self._left))]
        # Who goes meanwhile makes it no longer: others are to be out at last.
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
            self._unfit_since = None  # as it was: who lost a lease has a new one
            self._return_until = float("-inf")
        else:
            self._changed(now)

    def has_left(self, node_id: str, incarnation: int) -> bool:
        """That process said so, and is no member."""
        return self._left.get(node_id) == incarnation

    def stamped(self, stamp: Stamp, now: float) -> None:
        self._stamp = stamp
        self._changed(now)

    def _changed(self, now: float) -> None:
        # While members are waited for, each that comes may be the last: not all nodes at once
        # are to put the stamp then.
        if self._unfit_since is None or now < self._patient_until:
            self._unfit_since = now

    def member(self, node_id: str) -> Member | None:
        return self._members.get(node_id)

    @property
    def is_without_us(self) -> bool:
        """The others have gone on without this process. It is not that etcd has lost us and many
        of them, or what it knew."""
        members = self._there()
        number = View.numbered(self._stamp.number >> MARK_BITS, members).number
        if self._is_behind or not self.view.number < number == self._stamp.number:
            return False
        others = len(self.view.members) - 1
        missing = len(self._missing - {self._own.node_id})
        return not members.has(self._own) and 2 * missing <= others

    def missing(self, now: float) -> list[str]:
        """Node ids of our view that are waited for. Older starts in the keys are a backup's."""
        return sorted(self._missing) if now < self._patient_until else []

    def _has_now(self, member: Member) -> bool:
        found = self._members.get(member.node_id)
        return found is not None and found.address.incarnation >= member.address.incarnation

    # --- views

    def take(self, now: float) -> View | None:
        """The view that the stamp makes of the keys, if it is a new one."""
        if self._is_behind and self._missing and now < self._patient_until:
            return None  # a newcomer's, who knows nothing of those who are about to come back
        members = self._there()
        number = View.numbered(self._stamp.number >> MARK_BITS, members).number
        if number != self._stamp.number or number < self.view.number:
            return None
        # One without this process is not gone by: its key comes back.
        if not members.has(self._own):
            return None
        self._unfit_since = None
        self._origin = self._stamp.origin
        if number == self.view.number:
            return None
        self._go_by(View(number, members.members, members.by_id))
        return self.view

    def _is_there(self) -> bool:
        """This process, among those that can be in a view."""
        if len(self._members) > MEMBERS_MAX:
            return self._there().has(self._own)
        found = self._members.get(self._own.node_id)
        return found is not None and found.address.same_process(self._own)

    def _there(self) -> View:
        ids = sorted(self._members)[:MEMBERS_MAX]  # of too many, the same ones everywhere
        return View.of(0, [self._members[node_id] for node_id in ids])

    def due_at(self, now: float) -> float:
        """When this node is to compare keys and stamp, and to put a stamp if take() leaves them
        unfit; inf: not before they change."""
        if self._unfit_since is None or not self._is_there():
            return float("inf")
        since = self._unfit_since
        if self._missing:
            since = max(since, self._patient_until, self._return_until)
        spacing_s = VIEW_SPACING_S + VIEW_SPACING_PER_MEMBER_S * len(self._members)
        return since + spacing_s * 2.0 ** min(self._tries, DOUBLINGS_MAX) + self._turn_s()

    def _turn_s(self) -> float:
        """How long this node leaves it to others."""
        lower = (m for i, m in self._members.items() if i < self._own.node_id)
        if self.view.number == 0:
            before = sum(1 for _ in islice(lower, TURNS_MAX))
            return (NEWCOMER_S if self._stamp.number else 0.0) + TURN_S * before
        established = (m for m in lower if self.view.has(m.address))
        return TURN_S * sum(1 for _ in islice(established, TURNS_MAX))

    def next_stamp(self, now: float) -> Stamp:
        """For the keys as they are, to be put if etcd has none that this node has not heard of: a
        stamp for what has been before fits nothing, and makes the next view a new number."""
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
            number = self.view.number  # they are all there again: the view that everybody has
        return Stamp(number, origin)
