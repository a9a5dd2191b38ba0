"""The processes that may have copies of removed pages, and the removals each may have missed.

A *process* is one start of a node's daemon: a node id and an incarnation. Each other process is
either with us, or it *owes*: it may have missed a removal that is complete, whatever the reason
that it was away. A debt ends when that process has compared journals with us
(peer/removals/catch_up.py). Nothing else ends it.

Whether removals wait for a process is another matter. They wait for a process that vanished without
a goodbye: it may be frozen or cut off. The wait ends when the process looks ended or is forgotten.

A silent process may be in a part of the cluster that we cannot reach, and let new processes of
other nodes in there. So while removals wait for any process, every node that is away may be alive.
This ends when the silent processes are back, or when a removal has found that all nodes that are
away have ended.

Not thread safe.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from peercached.membership import Member, NodeAddress, View
from peercached.removals.ledger import Entry

# Processes kept for one node id. A daemon in a restart loop pushes out the process that had pages.
# Then nobody knows what that process missed, and the node drops these pages.
STARTS_PER_NODE_MAX = 8
NODES_MAX = 4096
NOT_KNOWN = -1

HasLeft = Callable[[str, int], bool]  # node id, incarnation


class Waits(Enum):
    """Whether removals wait for a process that is out of view."""

    YES = "silent"  # it went without a goodbye
    NO = "ended"  # it said goodbye, or looks ended
    NEVER = "forgotten"  # by an operator: `peercachectl forget`. Its address is not asked either


@dataclass(slots=True)
class Process:
    node_id: str
    incarnation: int
    host: str
    peer_port: int
    here: bool = True  # in our view
    waits: Waits = Waits.YES
    # Position in our journal of the first complete removal that it may have missed; 0: none. Or
    # NOT_KNOWN: it has missed some, but only a member that is gone, or a journal, knew which.
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


class Processes:
    """The processes of all other nodes that were ever in a view with this one, and of nodes that
    were away when this one came. `began_at`: our journal's position when it began, or at this
    start."""

    def __init__(self, own_id: str, known: Collection[Process] = (), began_at: int = 0) -> None:
        self._own_id = own_id
        self._began_at = began_at
        self._processes: dict[str, list[Process]] = {}  # oldest first
        self.changed = False  # must be saved at once; the caller saves and resets it
        self.has_news = False  # may be saved a moment later
        for process in known:
            process.was_away = True
            self._processes.setdefault(process.node_id, []).append(process)

    def __iter__(self) -> Iterator[Process]:
        for processes in self._processes.values():
            yield from processes

    def find(self, node_id: str, incarnation: int) -> Process | None:
        return next(
            (
                process
                for process in self._processes.get(node_id, ())
                if process.incarnation == incarnation
            ),
            None,
        )

    def newest_before(self, node_id: str, incarnation: int) -> int:
        """The incarnation of the newest other process of that node that we have met; 0: none."""
        processes = self._processes.get(node_id, ())
        return max(
            (one.incarnation for one in processes if one.incarnation != incarnation), default=0
        )

    def reached_by(self, node_id: str, upto: int) -> int:
        """The highest position that we have heard of in that node's journal, from its processes up
        to the incarnation `upto`."""
        processes = self._processes.get(node_id, ())
        return max((one.reached for one in processes if one.incarnation <= upto), default=0)

    # --- who is here

    def see(self, view: View, has_left: HasLeft, running: Collection[Entry], last: int) -> None:
        """Takes a new view. `running`: the removals under way here. `last`: our journal's position
        now."""
        own = view.by_id.get(self._own_id)
        our_start = 0 if own is None else own.address.incarnation
        for member in view.members:
            if member.node_id != self._own_id:
                self._meet(member.address, our_start, running, last)
        for process in self:
            member_now = view.by_id.get(process.node_id)
            if not process.here or (
                member_now is not None and member_now.address.incarnation == process.incarnation
            ):
                continue
            process.here, process.is_new, process.was_away = False, False, True
            process.waits = Waits.NO if has_left(*process.name) else Waits.YES
            self.changed = True
        if len(view.members) > 1:  # else we are the one that is away
            for entry in running:
                entry.away |= self.away()

    def _meet(
        self, address: NodeAddress, our_start: int, running: Collection[Entry], last: int
    ) -> None:
        processes = self._processes.setdefault(address.node_id, [])
        found = self.find(address.node_id, address.incarnation)
        is_back = found is None or not found.here
        if found is None:
            found = Process(
                address.node_id,
                address.incarnation,
                address.host,
                address.peer_port,
                key=address.key,
            )
            # It may have run elsewhere until now. If we know its node, it has missed what the
            # process before it has missed, and owes until it has asked us. If not, it has missed
            # what was removed since our start, and owes if any of that is complete.
            first = self._began_at + 1
            if processes:
                found.missed_from = processes[-1].missed_from or last + 1
                found.is_unclear = processes[-1].is_unclear
                # A node that was here before us does not ask us. So tell it of its inherited debt.
                found.is_new = not processes[-1].owes or address.incarnation > our_start
            elif last >= first and not any(entry.position <= first for entry in running):
                found.missed_from, found.is_new = first, True
            found.missed_last = last
            for entry in running:
                entry.away.add(found.incarnation)
            processes.append(found)
            del processes[:-STARTS_PER_NODE_MAX]
            self.changed = True
            self._trim()
        elif not found.here:
            found.here, found.waits = True, Waits.YES
            self.changed = True
        # Only one process can listen at an address, so removals need not wait for earlier ones.
        for process in self if is_back else ():
            is_earlier = process in processes or (
                not process.here and process.incarnation < address.incarnation
            )
            if (
                process is not found
                and is_earlier
                and (process.host, process.peer_port) == (address.host, address.peer_port)
            ):
                self.end(process)

    def _trim(self) -> None:
        if len(self._processes) <= NODES_MAX:
            return
        for node_id, processes in self._processes.items():
            if not any(process.here or process.is_silent for process in processes):
                del self._processes[node_id]
                return

    def suspect(self, members: Iterable[Member]) -> None:
        """Members of a view of an earlier start. This node knows nothing else of them. Each may
        still be alive, and may have missed any removal."""
        for member in members:
            a = member.address
            if a.node_id != self._own_id and self.find(a.node_id, a.incarnation) is None:
                process = Process(
                    a.node_id, a.incarnation, a.host, a.peer_port, here=False, key=a.key
                )
                process.is_unclear = True
                self._add(process, Waits.YES)

    def owed(self, away: Process) -> None:
        """A process that owed a member which is gone (claims.py). We keep our knowledge of it."""
        known = self.find(*away.name)
        if known is None:
            away.here = False
            self._add(away, Waits.NEVER)  # the other node may wait for it
            known = away
        if not known.owes:
            known.missed_from = NOT_KNOWN
            self.changed = True

    def _add(self, away: Process, waits: Waits) -> None:
        away.waits, away.was_away = waits, True
        processes = self._processes.setdefault(away.node_id, [])
        processes.append(away)
        processes.sort(key=lambda process: process.incarnation)
        del processes[:-STARTS_PER_NODE_MAX]
        self._trim()
        self.changed = True

    def may_come_back(self, has_left: HasLeft) -> list[Process]:
        """Processes that were away and owe, and may still run: out of our view, or back in it."""
        newest = [processes[-1] for processes in self._processes.values()]
        return [one for one in newest if one.owes and not (one.is_new or has_left(*one.name))]

    # --- the processes that removals wait for

    def silent(self, has_left: HasLeft) -> list[Process]:
        for process in self:
            if process.is_silent and has_left(*process.name):
                self.end(process)
        return [process for process in self if process.is_silent]

    def to_ask_for(self, has_left: HasLeft) -> list[Process]:
        """The processes that a removal has to wait for. While one is silent, these include the
        newest process of every node that is away."""
        silent = self.silent(has_left)
        if not silent:
            return []
        away = [
            processes[-1]
            for processes in self._processes.values()
            if not any(process.here for process in processes) and processes[-1].waits is Waits.NO
        ]
        return silent + away

    def may_have_outlived_us(self) -> set[str]:
        """Node ids that may still have been running at our last save."""
        is_anybody_silent = any(process.is_silent for process in self)
        ended = (Waits.NEVER,) if is_anybody_silent else (Waits.NEVER, Waits.NO)
        return {process.node_id for process in self if process.here or process.waits not in ended}

    def ended(self) -> set[tuple[str, int]]:
        outlived_us = self.may_have_outlived_us()
        return {process.name for process in self if process.node_id not in outlived_us}

    def end(self, process: Process) -> None:
        if process.here or process.waits is Waits.YES:
            process.here, process.waits = False, Waits.NO
            self.changed = True

    def forget(self, process: Process) -> None:
        process.waits = Waits.NEVER
        self.changed = True

    def found_nobody(self, asked: Collection[tuple[str, int]], answered: Collection[int]) -> None:
        """A removal has found that all these processes (node id, incarnation) look ended. It did
        not wait for those that have `answered` it (incarnations), but other removals do."""
        for process in self:
            if process.is_silent and process.name in asked and process.incarnation not in answered:
                self.end(process)

    # --- debts

    def removed(
        self,
        position: int,
        told_by: Collection[str] = (),
        up_to_date: Collection[int] | None = None,
    ) -> None:
        """This node carries out a complete removal, with entries from `position` on. Other nodes
        have told it of the removal: `told_by`. Processes that are out of view miss it. `up_to_date`
        (incarnations): all other processes in our view may have missed it, too."""
        for process in self:
            knows = process.node_id in told_by and not process.is_silent
            if process.here and (up_to_date is None or process.incarnation in up_to_date):
                continue
            if not knows:
                self._miss(process, position)

    def over(self, entry: Entry, answered: Collection[int]) -> None:
        """A removal is complete. Processes that have been away meanwhile have missed it, unless
        they have `answered` (incarnations). A member that was never away is asked itself, whatever
        this message says of it."""
        for process in self:
            was_away = not process.here or process.incarnation in entry.away
            if was_away and process.incarnation not in answered:
                self._miss(process, entry.position)

    def _miss(self, process: Process, position: int) -> None:
        if position <= process.heard_upto:
            return
        process.missed_last = max(process.missed_last, position)
        if process.missed_from == 0 or 0 < position < process.missed_from:
            process.missed_from = position
            self.changed = True

    def heard(self, process: Process, upto: int, running: Collection[Entry] = ()) -> None:
        """The process has heard of all our removals up to that position of our journal. It carries
        out those that are `running`."""
        for entry in running:
            if entry.position <= upto:
                entry.away.discard(process.incarnation)
        process.heard_upto = max(process.heard_upto, upto)
        process.is_new = process.is_unclear = False
        self._heard_upto(process, process.heard_upto)

    def _heard_upto(self, process: Process, position: int) -> None:
        left = position + 1 if process.owes and process.missed_last > position else 0
        if process.missed_from != left:
            process.missed_from = left
            self.changed = True

    def accept(self, process: Process) -> None:
        """A member was here before this node started, and owes nobody."""
        if process.is_new:
            process.is_new = process.is_unclear = False
            process.missed_from = 0
            self.changed = True

    def away(self) -> set[int]:
        """The incarnations of processes that are out of our view."""
        return {process.incarnation for process in self if not process.here}

    def trust(self, up_to_date: Collection[int]) -> None:
        """A member that has missed none of our removals says that these (incarnations) have missed
        none of its own."""
        for process in self:
            if process.here and process.owes and process.incarnation in up_to_date:
                process.missed_from, process.is_new = 0, False
                self.changed = True

    def up_to_date(self) -> list[int]:
        """The incarnations of processes in our view that have missed nothing of what we know."""
        return [process.incarnation for process in self if process.here and not process.owes]

    def owing(self) -> set[int]:
        """The incarnations of processes in our view that owe."""
        return {process.incarnation for process in self if process.here and process.owes}

    def reach(self, positions: Mapping[int, int]) -> None:
        """Records how far other journals have come. `positions`: by incarnation."""
        for process in self:
            position = positions.get(process.incarnation, 0)
            if position > process.reached:
                process.reached = position
                self.has_news = True

    def forget_all(self, began_at: int) -> None:
        """Call this if this node may have missed removals: then it cannot tell what other
        processes missed. It still knows which of them did. Those in our view stay as they are.
        `began_at`: where our journal begins anew."""
        self._began_at = began_at
        for process in self:
            if not process.here:
                process.missed_from = NOT_KNOWN if process.owes else 0
                process.is_unclear = True
        self.changed = True
