"""Which processes may have copies of removed pages, and which removals each may have missed.

A *life* is one start of a node's daemon: a node id and an incarnation. A removal is complete when
every life that may have the page has dropped it.

- A life that vanished without a goodbye is `SILENT`. It may be frozen or cut off and come back with
  its pages, so removals wait for it.
- A life that said goodbye, or that has ended, serves nothing any more.
- The next life of a node is told what the last one missed, before it serves its disk. So each node
  remembers, for each life, the first removal that this life may have missed.

A silent life may be in a part of the cluster that we cannot reach, and let new lives of other nodes
in there. So while any life is silent, every node that is away may be alive
(`is_anybody_unheard`). This ends when the silent lives are back, or when a removal has found
that all nodes that are away have ended.

Not thread safe.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from peercached.membership import Member, NodeAddress, View

# Lives kept for one node id. A daemon in a restart loop pushes out the life that had pages. Then
# nobody knows what that life missed, and the node drops these pages.
LIVES_PER_NODE_MAX = 8
NODES_MAX = 4096
NOT_KNOWN = -1

HasLeft = Callable[[str, int], bool]  # node id, incarnation


class Presence(Enum):
    HERE = "here"  # in our view
    SILENT = "silent"
    FOUND_ENDED = "found ended"  # its host says so; counts as unheard until found_nobody()
    ENDED = "ended"
    FORGOTTEN = "forgotten"  # by an operator: `peercachectl forget`


ASKED_FOR = (Presence.SILENT, Presence.FOUND_ENDED)
HAS_ENDED = (Presence.FOUND_ENDED, Presence.ENDED, Presence.FORGOTTEN)


@dataclass(slots=True)
class Life:
    node_id: str
    incarnation: int
    host: str
    peer_port: int
    presence: Presence = Presence.HERE
    owed_from: int = 0  # position in our journal of the first miss; 0: none; or NOT_KNOWN
    reached: int = 0  # last position of its own journal that we heard of

    @property
    def name(self) -> tuple[str, int]:
        return (self.node_id, self.incarnation)


class Lives:
    """The lives of all other nodes that were ever in a view with this one."""

    def __init__(self, own_id: str, known: Collection[Life] = ()) -> None:
        self._own_id = own_id
        self._lives: dict[str, list[Life]] = {}  # oldest first
        self.changed = False  # must be saved at once; the caller saves and resets it
        self.has_news = False  # may be saved a moment later
        # Lives that an operator had forgotten and that are back: where they owe removals from.
        self._returned: dict[tuple[str, int], int] = {}
        for life in known:
            self._lives.setdefault(life.node_id, []).append(life)

    def __iter__(self) -> Iterator[Life]:
        for lives in self._lives.values():
            yield from lives

    def find(self, node_id: str, incarnation: int) -> Life | None:
        return next(
            (life for life in self._lives.get(node_id, ()) if life.incarnation == incarnation), None
        )

    def newest_before(self, node_id: str, incarnation: int) -> tuple[int, int]:
        """(incarnation, journal position) of the newest other life of that node that we have met;
        (0, 0) if none."""
        return max(
            (
                (life.incarnation, life.reached)
                for life in self._lives.get(node_id, ())
                if life.incarnation != incarnation
            ),
            default=(0, 0),
        )

    def silent(self, has_left: HasLeft) -> list[Life]:
        for life in self:
            if life.presence in ASKED_FOR and has_left(*life.name):
                self.end(life)
        return [life for life in self if life.presence is Presence.SILENT]

    def to_ask_for(self, has_left: HasLeft) -> list[Life]:
        """The lives that a removal has to wait for. While one is unheard, these include the newest
        life of every node that is away."""
        silent = self.silent(has_left)
        if not self.is_anybody_unheard:
            return []
        away = [
            lives[-1]
            for lives in self._lives.values()
            if all(life.presence is not Presence.HERE for life in lives)
        ]
        ended = (Presence.FOUND_ENDED, Presence.ENDED)
        return silent + [life for life in away if life.presence in ended]

    def may_have_outlived_us(self) -> set[str]:
        """Node ids that may still have been running at our last save."""
        ended = (Presence.FORGOTTEN,) if self.is_anybody_unheard else HAS_ENDED
        return {life.node_id for life in self if life.presence not in ended}

    def ended(self) -> set[tuple[str, int]]:
        outlived_us = self.may_have_outlived_us()
        return {life.name for life in self if life.node_id not in outlived_us}

    def see(self, view: View, has_left: HasLeft, running_from: int) -> None:
        """Takes a new view. `running_from`: journal position of the oldest removal under way here,
        0 if none is. Lives that left the view may have missed everything from there on."""
        for member in view.members:
            if member.node_id != self._own_id:
                self._meet(member.address)
        for life in self:
            member_now = view.by_id.get(life.node_id)
            if life.presence is not Presence.HERE or (
                member_now is not None and member_now.address.incarnation == life.incarnation
            ):
                continue
            self._gone(life, has_left(*life.name))
            if running_from:
                self._owe(life, running_from)

    def suspect(self, members: Iterable[Member]) -> None:
        """Members of a view of an earlier start, of which this node knows nothing else. Each may
        still be alive, and may have missed any removal."""
        for member in members:
            a = member.address
            if a.node_id != self._own_id and self.find(a.node_id, a.incarnation) is None:
                life = Life(
                    a.node_id, a.incarnation, a.host, a.peer_port, Presence.SILENT, NOT_KNOWN
                )
                self._lives.setdefault(a.node_id, []).append(life)
                self.changed = True

    def _meet(self, address: NodeAddress) -> None:
        lives = self._lives.setdefault(address.node_id, [])
        found = self.find(address.node_id, address.incarnation)
        if found is None:
            found = Life(address.node_id, address.incarnation, address.host, address.peer_port)
            lives.append(found)
            del lives[:-LIVES_PER_NODE_MAX]
            self.changed = True
            self._trim()
        elif found.presence is not Presence.HERE:
            if found.presence is Presence.FORGOTTEN and found.owed_from:
                self._returned[found.name] = found.owed_from
            found.presence = Presence.HERE
            self.changed = True
        # Only one process can listen at an address, so earlier lives there have ended.
        for life in lives:
            if life is not found and (life.host, life.peer_port) == (
                address.host,
                address.peer_port,
            ):
                self.end(life)

    def _trim(self) -> None:
        if len(self._lives) <= NODES_MAX:
            return
        for node_id, lives in self._lives.items():
            if all(life.presence in HAS_ENDED for life in lives):
                del self._lives[node_id]
                return

    def returned(self, node_id: str, incarnation: int) -> int:
        """The first position in our journal that this life missed, because removals did not wait
        for it: an operator had forgotten it, but it still ran. 0: it missed none; or NOT_KNOWN."""
        return self._returned.get((node_id, incarnation), 0)

    def _gone(self, life: Life, has_left: bool) -> None:
        self._returned.pop(life.name, None)
        life.presence = Presence.ENDED if has_left else Presence.SILENT
        self.changed = True

    def end(self, life: Life) -> None:
        if life.presence is not Presence.ENDED:
            life.presence = Presence.ENDED
            self.changed = True

    def forget(self, life: Life) -> None:
        life.presence = Presence.FORGOTTEN
        self.changed = True

    def found_ended(self, life: Life) -> None:
        if life.presence is Presence.SILENT:
            life.presence = Presence.FOUND_ENDED
            self.changed = True

    def found_nobody(self) -> None:
        """A removal has found that every life it waited for has ended."""
        for life in self:
            if life.presence is Presence.FOUND_ENDED:
                self.end(life)

    @property
    def is_anybody_unheard(self) -> bool:
        return any(life.presence in ASKED_FOR for life in self)

    def _owe(self, life: Life, position: int) -> None:
        if life.owed_from == 0 or position < life.owed_from:
            life.owed_from = position
            self.changed = True

    def removed(self, position: int, told_by: str = "") -> None:
        """This node carries a removal out, with entries from `position` on. Lives that are away
        miss it. `told_by`: the node that told us; its ended lives are not owed the removal."""
        for life in self:
            if life.presence is Presence.HERE:
                continue
            if life.node_id != told_by or life.presence is not Presence.ENDED:
                self._owe(life, position)

    def over(self, position: int, answered: Collection[int]) -> None:
        """A removal is complete. `answered` (incarnations): all other lives may have missed it."""
        for life in self:
            if life.incarnation not in answered:
                self._owe(life, position)

    def reach(self, positions: Mapping[int, int]) -> None:
        """Records how far other journals have come. `positions`: by incarnation."""
        for life in self:
            position = positions.get(life.incarnation, 0)
            if position > life.reached:
                life.reached = position
                self.has_news = True

    def forget_all(self) -> None:
        """Call this if this node may have missed removals: then it cannot tell what other lives
        missed. Lives in our view stay as they are. Removals still wait for silent lives."""
        for node_id, lives in list(self._lives.items()):
            self._lives[node_id] = kept = [
                life
                for life in lives
                if life.presence is Presence.HERE or life.presence in ASKED_FOR
            ]
            for life in kept:
                if life.presence is not Presence.HERE:
                    life.owed_from = NOT_KNOWN
            if not kept:
                del self._lives[node_id]
        self.changed = True
