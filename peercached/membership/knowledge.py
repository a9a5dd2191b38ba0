"""The knowledge of one node: its own record, the members, and the newest views."""

from __future__ import annotations

from dataclasses import replace

from peercached.membership.flapping import Flapping
from peercached.membership.messages import Action, Heartbeat, Refused, ViewChanged
from peercached.membership.reach import FIRST_ASKED_MAX, ViewReach, sequence_within_reach
from peercached.membership.table import Table
from peercached.membership.timing import Timing
from peercached.membership.updates import History, ViewUpdate
from peercached.membership.view import MARK_BITS, Member, State, View


class Knowledge:
    """Not thread safe; `now` is monotonic seconds."""

    def __init__(self, own: Member, told: int, timing: Timing) -> None:
        self.own = own
        self.view = View.alone(own.address)  # in use: the newest that has this process
        self.latest = View.nothing()  # the newest known, perhaps without this process
        self.refused = ""
        self.table = Table(timing.remember_gone_s)
        self.flapping = Flapping(timing)
        if told >> MARK_BITS > FIRST_ASKED_MAX:
            told = 0  # a lie: no cluster ever makes that many views
        self.told = told  # the highest number within reach that any node mentioned
        self.told_at = float("-inf")  # when it exceeded the latest view's
        self.reach = ViewReach(timing.member_ttl_s)
        self._history = History()
        self._timing = timing
        self._returns_until = float("-inf")
        self._next: View | None = None  # adopted when the wait for returning members ends

    def beat(self, update: ViewUpdate | None = None) -> Heartbeat:
        return Heartbeat(self.own, self.latest.number, update)

    def whole(self, now: float) -> ViewUpdate:
        """The latest view in full, for any receiver."""
        return self.since(0, now)

    def since(self, number: int, now: float) -> ViewUpdate:
        """The latest view, for a receiver that has view `number`."""
        update = self._history.update_for(number, self.table, now)
        return update if update.base else replace(update, joins=self.flapping.told(now))

    def resolve(self, update: ViewUpdate, now: float, asked: bool = False) -> View | None:
        """The view that `update` describes. None if its base is unknown, or if any number in it is
        out of reach (reach.py, also for `asked`)."""
        if update.number == 0 or not self._within_reach(update.number, now, asked):
            return None
        told = [(m.node_id, m.sequence) for m in update.members]
        told += [(tombstone.node_id, tombstone.sequence) for tombstone in update.gone]
        if not all(self.sequence_within_reach(*one) for one in told):
            self.reach.refuse(now)
            return None
        return self._history.resolve(update)

    def sequence_within_reach(self, node_id: str, sequence: int) -> bool:
        own = self.own.sequence if node_id == self.own.node_id else -1
        return sequence_within_reach(sequence, max(own, self.table.newest(node_id)[0]))

    def _within_reach(self, number: int, now: float, asked: bool = False) -> bool:
        # Measured from `latest`, not from `told`: that may come from an old state_dir.
        return number <= self.latest.number or self.reach.has(
            number, self.latest.number, now, asked
        )

    def hear_of(self, number: int, now: float) -> None:
        if number > self.told and self._within_reach(number, now):
            if self.told <= self.latest.number:
                self.told_at = now
            self.told = number

    def adopt(self, view: View, now: float) -> list[Action]:
        """Makes `view` the latest, and the one in use if that loses no live member."""
        self.flapping.saw(self.latest, view, now)
        self.latest = view
        self._history.add(view, self.table.last_serial)
        # Never use a view that excludes us. It is older than our last heartbeat to its maker, or we
        # were removed. Either way our next heartbeat gets us into a view. Until then our present
        # view serves better than none.
        if not view.has(self.own.address) or self.own.state is State.LEFT:
            return []
        member = view.by_id[self.own.node_id]
        if member.sequence > self.own.sequence:  # another node has objected for us
            self._return(now)
            self.own = replace(self.own, sequence=member.sequence)
        waiting, self._next = self._next is not None, view
        lost = self._lost(view)
        if not waiting and any(self.table.gone(node_id) is None for node_id in lost):
            self._return(now)  # nobody reported them dead: the view's master may not know them yet
        return [] if lost and now < self._returns_until else self._adopt_pending_view()

    @property
    def waits_until(self) -> float:
        """When to call waited(), in monotonic seconds; inf: nothing waits."""
        return self._returns_until if self._next is not None else float("inf")

    def waited(self, now: float) -> list[Action]:
        return self._adopt_pending_view() if now >= self.waits_until else []

    def _adopt_pending_view(self) -> list[Action]:
        assert self._next is not None
        self.view, self._next = self._next, None
        self.refused = ""
        return [ViewChanged(self.view)]

    def _lost(self, view: View) -> list[str]:
        """Members of our view that `view` lacks, except those that said goodbye."""
        lost = [node_id for node_id in self.view.by_id if node_id not in view.by_id]
        gone = {node_id: self.table.gone(node_id) for node_id in lost}
        return [
            n for n in lost if (tombstone := gone[n]) is None or tombstone.state is not State.LEFT
        ]

    def refuse(self, reason: str) -> list[Action]:
        first, self.refused = not self.refused, reason
        self._next = None
        actions: list[Action] = [Refused(reason)] if first else []
        if self.view.number > 0:
            self.view = View.alone(self.own.address)
            actions.append(ViewChanged(self.view))
        return actions

    # --- this node's own record

    def announce(self, state: State) -> None:
        self.own = replace(self.own, sequence=self.own.sequence + 1, state=state)

    def object(self, sequence: int, now: float) -> None:
        """Refutes a report that we were dead at `sequence`: takes the next sequence."""
        self._return(now)
        self.own = replace(self.own, sequence=sequence + 1)

    def _return(self, now: float) -> None:
        """We were held dead: keep our view for up to a TTL, while peers come back, too."""
        if self.view.number and now >= self._returns_until:
            self._returns_until = now + self._timing.member_ttl_s

    def accused(self) -> int | None:
        """The sequence up to which the table has this node as dead; None: it has not."""
        gone = self.table.gone(self.own.node_id)
        if gone is None or gone.age < self.own.age or self.own.state is State.LEFT:
            return None
        return gone.sequence

    def enter(self, now: float) -> None:
        """Puts our own record into the table, newer than any record of our node id there."""
        known, gone = self.table.member(self.own.node_id), self.table.gone(self.own.node_id)
        if known == self.own:
            return
        newest = known.age if known is not None else gone.age if gone is not None else (-1, 0, 0)
        if self.own.age <= newest:
            self.object(newest[0], now)
        self.table.take(self.own, now)
