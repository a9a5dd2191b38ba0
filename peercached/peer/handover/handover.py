"""Puts together all ways that bring pages of this node to others, and theirs to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peercached.cold.tier import ColdTier
from peercached.component import Component
from peercached.directory.placement import Placement
from peercached.peer.directory.own_records import OwnRecords
from peercached.peer.handover.drain import Drain
from peercached.peer.handover.giver import Giver
from peercached.peer.handover.move import Move
from peercached.peer.handover.parts import Offers
from peercached.peer.handover.push import Push
from peercached.peer.handover.replicas import Replicas
from peercached.peer.handover.spill import Spill
from peercached.peer.membership.goodbye import Goodbye
from peercached.removals.debts import Debts
from peercached.service.settings import Settings

if TYPE_CHECKING:
    from peercached._native import Engine


class Handover:
    """Use it on the event loop's thread. `settings.config` is the one in force."""

    def __init__(
        self,
        engine: Engine,
        placement: Placement,
        offers: Offers,
        own_records: OwnRecords,
        goodbye: Goodbye,
        debts: Debts,
        settings: Settings,
        timeout_s: float,
        cold: ColdTier,
    ) -> None:
        self.drain = Drain(engine, placement, offers, own_records, goodbye, debts, cold)
        self._giver = Giver(engine, placement, offers, own_records)
        self.move = Move(engine, placement, self._giver, debts)
        self._push = Push(engine, self._giver, self.drain, settings.config.write_policy)
        self.spill = Spill(engine, placement, offers, self._giver, self.drain, settings)
        self._replicas = Replicas(engine, settings, timeout_s)

    @property
    def components(self) -> list[Component]:
        return [self.drain, self._push, self.spill]

    def tend(self, now: float) -> None:
        """Call it a few times a second; `now` is monotonic seconds."""
        self._push.tend(now)
        self.spill.tend(now)
        self._replicas.tend(now)

    async def stop(self) -> None:
        await self._push.stop()
        await self.spill.stop()
        await self._giver.stop()
        await self._replicas.stop()
        await self.drain.stop()
