"""The processes that may have copies of removed pages, and the removals each may have missed.

A *life* is one start of a node's daemon: a node id and an incarnation. Each other life is either
with us, or it *owes*: it may have missed a removal that is complete, whatever the reason that it
was away. A debt ends when that life has compared journals with us (peer/removals/catch_up.py).
Nothing else ends it.

Whether removals wait for a life is another matter. They wait for a life that vanished without a
goodbye: it may be frozen or cut off. The wait ends when the life looks ended or is forgotten.

A silent life may be in a part of the cluster that we cannot reach, and let new lives of other nodes
in there. So while removals wait for any life, every node that is away may be alive. This ends when
the silent lives are back, or when a removal has found that all nodes that are away have ended.

Not thread safe.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from peercached.membership import Member, NodeAddress, View
from peercached.removals.ledger import Entry

# Lives kept for one node id. A daemon in a restart loop pushes out the life that had pages. Then
# nobody knows what that life missed, and the node drops these pages.
LIVES_PER_NODE_MAX = 8
NODES_MAX = 4096
NOT_KNOWN = -1

HasLeft = Callable[[str, int], bool]  # node id, incarnation


class Waits(Enum):
    """Whether removals wait for a life that is out of view."""

    YES = "silent"  # it went without a goodbye
    NO = "ended"  # it said goodbye, or looks ended
    NEVER = "forgotten"  # by an operator: `peercachectl forget`. Its address is not asked either


@dataclass(slots=True)
class Life:
    node_id: str
    incarnation: int
    host: str
    peer_port: int
    here: bool = True  # in our view
    waits: Waits = Waits.YES
    # Position in our journal of the first complete removal that it may have missed; 0: none. Or
    # NOT_KNOWN: a member that is gone said that it has missed some.
    missed_from: int = 0
    is_unclear: bool = False  # Whether it may have missed removals from before our journal began.
    reached: int = 0  # The last position of its own journal that we heard of.
    key: bytes = b""  # its node's; empty: not known

    # These are not saved.
    is_new: bool = False  # Whether it owes only because it has never asked us.
    missed_last: int = 0  # The position of the last removal that it may have missed.
    heard_upto: int = 0  # It has heard of all our removals up to this position.
    was_away: bool = False  # Whether it has been out of our view.

    @property
    def name(self) -> tuple[str, int]:
        return (self.node_id, self.incarnation)

    @property
    def owes(self) -> bool:
        return self.missed_from != 0

    @property
    def is_silent(self) -> bool:
        return not self.here and self.waits is Waits.YES


class Lives:
    """The lives of all other nodes that were ever in a view with this one, and of nodes that were
    away when this one came. `began_at`: our journal's position when it began, or at this start."""

    def __init__(self, own_id: str, known: Collection[Life] = (), began_at: int = 0) -> None:
        self._own_id = own_id
        self._began_at = began_at
        self._lives: dict[str, list[Life]] = {}  # oldest first
        self.changed = False  # must be saved at once; the caller saves and resets it
        self.has_news = False  # may be saved a moment later
        for life in known:
            life.was_away = True
            self._lives.setdefault(life.node_id, []).append(life)

    def __iter__(self) -> Iterator[Life]:
        for lives in self._lives.values():
            yield from lives

    def find(self, node_id: str, incarnation: int) -> Life | None:
        return next(
            (life for life in self._lives.get(node_id, ()) if life.incarnation == incarnation), None
        )

    def newest_before(self, node_id: str, incarnation: int) -> int:
        """The incarnation of the newest other life of that node that we have met; 0: none."""
        lives = self._lives.get(node_id, ())
        return max((one.incarnation for one in lives if one.incarnation != incarnation), default=0)

    def reached_by(self, node_id: str, upto: int) -> int:
        """The highest position that we have heard of in that node's journal, from its lives up to
        the incarnation `upto`."""
        lives = self._lives.get(node_id, ())
        return max((one.reached for one in lives if one.incarnation <= upto), default=0)

    # --- who is here

    def see(self, view: View, has_left: HasLeft, running: Collection[Entry], last: int) -> None:
        """Takes a new view. `running`: the removals under way here. `last`: our journal's position
        now."""
        own = view.by_id.get(self._own_id)
        our_start = 0 if own is None else own.address.incarnation
        for member in view.members:
            if member.node_id != self._own_id:
                self._meet(member.address, our_start, running, last)
        for life in self:
            member_now = view.by_id.get(life.node_id)
            if not life.here or (
                member_now is not None and member_now.address.incarnation == life.incarnation
            ):
                continue
            life.here, life.is_new, life.was_away = False, False, True
            life.waits = Waits.NO if has_left(*life.name) else Waits.YES
            self.changed = True
        if len(view.members) > 1:  # else we are the one that is away
            for entry in running:
                entry.away |= self.away()

    def _meet(
        self, address: NodeAddress, our_start: int, running: Collection[Entry], last: int
    ) -> None:
        lives = self._lives.setdefault(address.node_id, [])
        found = self.find(address.node_id, address.incarnation)
        is_back = found is None or not found.here
        if found is None:
            found = Life(
                address.node_id,
                address.incarnation,
                address.host,
                address.peer_port,
                key=address.key,
            )
            # It may have run elsewhere until now. If we know its node, it has missed what the life
            # before it has missed, and owes until it has asked us. If not, it has missed what was
            # removed since our start, and owes if any of that is complete.
            first = self._began_at + 1
            if lives:
                found.missed_from = lives[-1].missed_from or last + 1
                found.is_unclear = lives[-1].is_unclear
                # A node that was here before us does not ask us. So tell it of its inherited debt.
                found.is_new = not lives[-1].owes or address.incarnation > our_start
            elif last >= first and not any(entry.position <= first for entry in running):
                found.missed_from, found.is_new = first, True
            found.missed_last = last
            for entry in running:
                entry.away.add(found.incarnation)
            lives.append(found)
            del lives[:-LIVES_PER_NODE_MAX]
            self.changed = True
            self._trim()
        elif not found.here:
            found.here, found.waits = True, Waits.YES
            self.changed = True
        # Only one process can listen at an address, so removals need not wait for earlier ones.
        for life in self if is_back else ():
            is_earlier = life in lives or (not life.here and life.incarnation < address.incarnation)
            if (
                life is not found
                and is_earlier
                and (life.host, life.peer_port) == (address.host, address.peer_port)
            ):
                self.end(life)

    def _trim(self) -> None:
        if len(self._lives) <= NODES_MAX:
            return
        for node_id, lives in self._lives.items():
            if not any(life.here or life.is_silent for life in lives):
                del self._lives[node_id]
                return

    def suspect(self, members: Iterable[Member]) -> None:
        """Members of a view of an earlier start. This node knows nothing else of them. Each may
        still be alive, and may have missed any removal."""
        for member in members:
            a = member.address
            if a.node_id != self._own_id and self.find(a.node_id, a.incarnation) is None:
                life = Life(a.node_id, a.incarnation, a.host, a.peer_port, here=False, key=a.key)
                life.is_unclear = True
                self._add(life, Waits.YES)

    def owed(self, away: Life) -> None:
        """A life that owed a member which is gone (claims.py). We keep our knowledge of it."""
        known = self.find(*away.name)
        if known is None:
            away.here = False
            self._add(away, Waits.NEVER)  # the other node may wait for it
            known = away
        if not known.owes:
            known.missed_from = NOT_KNOWN
            self.changed = True

    def _add(self, away: Life, waits: Waits) -> None:
        away.waits, away.was_away = waits, True
        lives = self._lives.setdefault(away.node_id, [])
        lives.append(away)
        lives.sort(key=lambda life: life.incarnation)
        del lives[:-LIVES_PER_NODE_MAX]
        self.changed = True

    def may_come_back(self, has_left: HasLeft) -> list[Life]:
        """Lives that were away and owe, and may still run: out of our view, or back in it."""
        newest = [lives[-1] for lives in self._lives.values()]
        return [one for one in newest if one.owes and not (one.is_new or has_left(*one.name))]

    # --- the lives that removals wait for

    def silent(self, has_left: HasLeft) -> list[Life]:
        for life in self:
            if life.is_silent and has_left(*life.name):
                self.end(life)
        return [life for life in self if life.is_silent]

    def to_ask_for(self, has_left: HasLeft) -> list[Life]:
        """The lives that a removal has to wait for. While one is silent, these include the newest
        life of every node that is away."""
        silent = self.silent(has_left)
        if not silent:
            return []
        away = [
            lives[-1]
            for lives in self._lives.values()
            if not any(life.here for life in lives) and lives[-1].waits is Waits.NO
        ]
        return silent + away

    def may_have_outlived_us(self) -> set[str]:
        """Node ids that may still have been running at our last save."""
        is_anybody_silent = any(life.is_silent for life in self)
        ended = (Waits.NEVER,) if is_anybody_silent else (Waits.NEVER, Waits.NO)
        return {life.node_id for life in self if life.here or life.waits not in ended}

    def ended(self) -> set[tuple[str, int]]:
        outlived_us = self.may_have_outlived_us()
        return {life.name for life in self if life.node_id not in outlived_us}

    def end(self, life: Life) -> None:
        if life.here or life.waits is Waits.YES:
            life.here, life.waits = False, Waits.NO
            self.changed = True

    def forget(self, life: Life) -> None:
        life.waits = Waits.NEVER
        self.changed = True

    def found_nobody(self, answered: Collection[int]) -> None:
        """A removal has found that every life it waited for looks ended. It did not wait for
        those that have `answered` it (incarnations), but other removals do."""
        for life in self:
            if life.is_silent and life.incarnation not in answered:
                self.end(life)

    # --- debts

    def removed(
        self,
        position: int,
        told_by: Collection[str] = (),
        up_to_date: Collection[int] | None = None,
    ) -> None:
        """This node carries out a complete removal, with entries from `position` on. Other nodes
        have told it of the removal: `told_by`. Lives that are out of view miss it. `up_to_date`
        (incarnations): all other lives in our view may have missed it, too."""
        for life in self:
            knows = life.node_id in told_by and not life.is_silent
            if life.here and (up_to_date is None or life.incarnation in up_to_date):
                continue
            if not knows:
                self._miss(life, position)

    def over(self, entry: Entry, answered: Collection[int]) -> None:
        """A removal is complete. Lives that have been away meanwhile have missed it, unless they
        have `answered` (incarnations). A member that was never away is asked itself, whatever this
        message says of it."""
        for life in self:
            was_away = not life.here or life.incarnation in entry.away
            if was_away and life.incarnation not in answered:
                self._miss(life, entry.position)

    def _miss(self, life: Life, position: int) -> None:
        if position <= life.heard_upto:
            return
        life.missed_last = max(life.missed_last, position)
        if life.missed_from == 0 or 0 < position < life.missed_from:
            life.missed_from = position
            self.changed = True

    def heard(self, life: Life, upto: int, running: Collection[Entry] = ()) -> None:
        """The life has heard of all our removals up to that position of our journal. It carries out
        those that are `running`."""
        for entry in running:
            if entry.position <= upto:
                entry.away.discard(life.incarnation)
        life.heard_upto = max(life.heard_upto, upto)
        life.is_new = life.is_unclear = False
        self._heard_upto(life, life.heard_upto)

    def _heard_upto(self, life: Life, position: int) -> None:
        left = position + 1 if life.owes and life.missed_last > position else 0
        if life.missed_from != left:
            life.missed_from = left
            self.changed = True

    def accept(self, life: Life) -> None:
        """A member was here before this node started, and owes nobody."""
        if life.is_new:
            life.is_new = life.is_unclear = False
            life.missed_from = 0
            self.changed = True

    def away(self) -> set[int]:
        """The incarnations of lives that are out of our view."""
        return {life.incarnation for life in self if not life.here}

    def trust(self, up_to_date: Collection[int]) -> None:
        """A member that has missed none of our removals says that these (incarnations) have missed
        none of its own."""
        for life in self:
            if life.here and life.owes and life.incarnation in up_to_date:
                life.missed_from, life.is_new = 0, False
                self.changed = True

    def up_to_date(self) -> list[int]:
        """The incarnations of lives in our view that have missed nothing of what we know."""
        return [life.incarnation for life in self if life.here and not life.owes]

    def owing(self) -> set[int]:
        """The incarnations of lives in our view that owe."""
        return {life.incarnation for life in self if life.here and life.owes}

    def reach(self, positions: Mapping[int, int]) -> None:
        """Records how far other journals have come. `positions`: by incarnation."""
        for life in self:
            position = positions.get(life.incarnation, 0)
            if position > life.reached:
                life.reached = position
                self.has_news = True

    def forget_all(self, began_at: int) -> None:
        """Call this if this node may have missed removals: then it cannot tell what other lives
        missed. Lives in our view stay as they are. `began_at`: where our journal begins anew."""
        self._began_at = began_at
        for life in self:
            if not life.here:
                life.missed_from, life.is_unclear = 0, True
        self.changed = True
