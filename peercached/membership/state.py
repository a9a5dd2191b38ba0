"""The state of this node: its phases, and every way from one to the next.

    OUTSIDE ──VIEW──▶ MEMBER ──LOSS──▶ HOLDING        REFUSED ──VIEW──▶ MEMBER
                         ▲                │
                         └──VIEW, WAITED──┘           each ──DUPLICATE──▶ REFUSED, ──GOODBYE──▶ LEFT

VIEW: a newer view with this process comes. LOSS: the same, but members are missing that may be
about to return. WAITED: they had their time. DUPLICATE: a master says that another live process has
this node id. GOODBYE: this node leaves.

Whether the node is a master is another question (order.py); REFUSED and LEFT ones are not.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from enum import Enum, auto

from peercached.membership.messages import Action, Refused, ViewChanged
from peercached.membership.table import Table
from peercached.membership.timing import Timing
from peercached.membership.view import Gone, Member, State, View


class Phase(Enum):
    OUTSIDE = auto()  # in no view yet: uses a view of itself alone
    MEMBER = auto()  # uses the newest view that has this process
    HOLDING = auto()  # keeps its view: the newest one lacks members that may be about to return
    REFUSED = auto()  # another live process has its node id: uses a view of itself alone
    LEFT = auto()  # said goodbye: keeps its view to the end


# Each phase, with the phases that may precede it. LEFT is final.
FROM: Mapping[Phase, Collection[Phase]] = {
    Phase.MEMBER: (Phase.OUTSIDE, Phase.MEMBER, Phase.HOLDING, Phase.REFUSED),
    Phase.HOLDING: (Phase.MEMBER, Phase.HOLDING),
    Phase.REFUSED: (Phase.OUTSIDE, Phase.MEMBER, Phase.HOLDING, Phase.REFUSED),
    Phase.LEFT: (Phase.OUTSIDE, Phase.MEMBER, Phase.HOLDING, Phase.REFUSED),
}


class NodeState:
    """The phase, this node's own record, and the view in use. Only the methods here change them.
    Not thread safe; `now` is monotonic seconds."""

    def __init__(self, own: Member, timing: Timing) -> None:
        self.phase = Phase.OUTSIDE
        self.own = own
        self.view = View.alone(own.address)
        self.refused = ""  # why
        self._timing = timing
        self._pending: View | None = None  # the view to use after HOLDING
        self._hold_until = float("-inf")

    def _enter(self, phase: Phase) -> None:
        assert self.phase in FROM[phase], f"{self.phase} to {phase}"
        self.phase = phase

    # --- views

    def view_came(self, view: View, table: Table, now: float) -> list[Action]:
        """The newest view that this node knows. `table` has the tombstones."""
        # Never use a view that excludes us. It is older than our last heartbeat to its maker, or we
        # were removed. Either way our next heartbeat gets us into a view. Until then our present
        # view serves better than none.
        if self.phase is Phase.LEFT or not view.has(self.own.address):
            return []
        sequence = view.by_id[self.own.node_id].sequence
        if sequence > self.own.sequence:  # another node has objected for us
            self._hold(now)
            self.own = replace(self.own, sequence=sequence)
        lost = [table.gone(node_id) for node_id in self.view.by_id if node_id not in view.by_id]
        lost = [tombstone for tombstone in lost if not tombstone or tombstone.state != State.LEFT]
        if self.phase is not Phase.HOLDING and None in lost:
            self._hold(now)  # nobody reported them dead: the view's master may not know them yet
        self._pending = view
        if lost and now < self._hold_until:
            self._enter(Phase.HOLDING)
            return []
        return self._use_pending()

    def _hold(self, now: float) -> None:
        """We were held dead, or peers are missing. They may return, so keep our view for a TTL."""
        if self.view.number and now >= self._hold_until:
            self._hold_until = now + self._timing.member_ttl_s

    @property
    def holds_until(self) -> float:
        """When to call waited(), in monotonic seconds; inf: nothing waits."""
        return self._hold_until if self.phase is Phase.HOLDING else float("inf")

    def waited(self, now: float) -> list[Action]:
        return self._use_pending() if now >= self.holds_until else []

    def _use_pending(self) -> list[Action]:
        assert self._pending is not None
        self._enter(Phase.MEMBER)
        self.view, self._pending = self._pending, None
        self.refused = ""
        return [ViewChanged(self.view)]

    def refuse(self, reason: str) -> list[Action]:
        actions: list[Action] = [] if self.phase is Phase.REFUSED else [Refused(reason)]
        self._enter(Phase.REFUSED)
        self.refused, self._pending = reason, None
        if self.view.number > 0:
            self.view = View.alone(self.own.address)
            actions.append(ViewChanged(self.view))
        return actions

    # --- this node's own record

    def announce(self, state: State) -> None:
        self.own = replace(self.own, sequence=self.own.sequence + 1, state=state)
        if state is State.LEFT:
            self._enter(Phase.LEFT)

    def is_head(self, rank: int) -> None:
        self.own = replace(self.own, sequence=self.own.sequence + 1, head_rank=rank)

    def object(self, sequence: int, now: float) -> None:
        """Refutes a report that we were dead at `sequence`: takes the next sequence."""
        self._hold(now)
        self.own = replace(self.own, sequence=sequence + 1)

    def is_accused(self, gone: Gone | None) -> bool:
        """Whether that tombstone of our node id says that we are dead."""
        return gone is not None and gone.age >= self.own.age and self.phase is not Phase.LEFT
