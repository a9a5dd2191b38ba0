"""Epochs that peers tell this node. They are written to disk for the next start."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from peercached.background_writer import BackgroundWriter
from peercached.directory.epoch_store import EpochStore
from peercached.directory.epochs import Epochs
from peercached.directory.first_clears import FirstClears
from peercached.directory.placement import Placement
from peercached.membership import NodeAddress
from peercached.peer.rpc.auth import Sessions
from peercached.removals.debts import Debts

if TYPE_CHECKING:
    from peercached._native import Engine


class NotPersisted(RuntimeError):
    """The epochs are in force but not on disk: a restart would forget them."""


class SharedEpochs(Epochs):
    """Only members that owe no removal may tell of clears. Not thread safe."""

    def __init__(
        self,
        engine: Engine,
        store: EpochStore,
        first_clears: FirstClears,
        placement: Placement,
        debts: Debts,
        sessions: Sessions,
    ) -> None:
        super().__init__(engine, first_clears)
        self._store = store
        self._writer = BackgroundWriter(self.all, store.save)
        self._placement = placement
        self._debts = debts
        self._sessions = sessions

    def hear(self, member: NodeAddress, epochs: Iterable[tuple[bytes, int]]) -> None:
        """Takes the epochs of a heartbeat or its answer. Heartbeats of all members share one rate
        limit: each passes on what others told it, and they must not fill the table together."""
        if self._may_tell(member):
            self.learn(epochs, by="the heartbeats of all members")

    def raise_for(self, member: NodeAddress, namespace_id: bytes, epoch: int) -> int:
        """Takes the epoch of a call. Like raise_to(). Raises LookupError if the epoch is new here
        and the caller is no member or owes: without a member's word, no row of the table is
        taken."""
        if (known := self.of(namespace_id)) >= epoch:
            return known
        if not self._may_tell(member):
            raise LookupError(
                f"{member.node_id} (incarnation {member.incarnation}) is not in our view, or was "
                "away and has yet to compare: it cannot clear namespaces"
            )
        return self.raise_to(namespace_id, epoch, by=f"host {self._sessions.host_of(member)}")

    def persist(self) -> None:
        """Begins a write of the epochs in force."""
        if self._store.path is not None:
            self._writer.changed()

    async def persisted(self) -> None:
        """Returns once all epochs in force are on disk. Raises NotPersisted if the write fails
        twice."""
        await self._writer.done()
        if self._store.problem:
            self.persist()
            await self._writer.done()
        if self._store.problem:
            raise NotPersisted(f"namespace epochs cannot be kept: {self._store.problem}")

    async def stop(self) -> None:
        """Waits for the write in progress, if there is one."""
        await self._writer.done()

    def _may_tell(self, caller: NodeAddress) -> bool:
        """A clear that only nodes know which were away hides their pages from our removals. So they
        compare before they tell it."""
        is_member = self._placement.find_process(caller) is not None
        return is_member and not self._debts.has_debt(caller)
