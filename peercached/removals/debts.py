"""The processes that may have missed removals, this node among them."""

from __future__ import annotations

from peercached.membership import NodeAddress
from peercached.removals.claims import Claims
from peercached.removals.processes import Processes
from peercached.removals.store import Remembered, RemovalStore


class Debts:
    """Loads what an earlier start of this node knew; blocks on file I/O. Not thread safe.
    `state_is_old`: state_dir is older than the disk or pool file, so it misses removals and is not
    used. `journal_last`: our journal's position now."""

    def __init__(
        self, own: NodeAddress, store: RemovalStore, state_is_old: bool, journal_last: int
    ) -> None:
        found = store.load()
        self.remembered = Remembered() if state_is_old else found
        self.is_of_another_cluster = found.is_of_another_cluster
        # Whether this node may have missed removals, and has yet to compare (catch_up.py).
        self.owes = True
        self.processes = Processes(own.node_id, self.remembered.processes, journal_last)
        self.claims = Claims(own.node_id, self.remembered.claims)

    def debtors(self) -> set[int]:
        """The incarnations of processes that may have missed a removal known to a member."""
        return self.processes.owing() | self.claims.owing()

    def has_debt(self, process: NodeAddress) -> bool:
        return process.incarnation in self.debtors()

    def must_tell(self, process: NodeAddress) -> bool:
        """Whether to tell that process that it owes us or another member. New ones ask by
        themselves. As long as we owe ourselves, others know better."""
        known = self.processes.find(process.node_id, process.incarnation)
        owes_us = known is not None and known.owes and not known.is_new
        return not self.owes and (owes_us or process.incarnation in self.claims.owing())
