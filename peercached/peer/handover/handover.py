"""All ways in which pages of this node come to others, and theirs to it, put together."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

from peercached.component import Component
from peercached.config import Config
from peercached.directory.placement import Placement
from peercached.peer.handover.drain import Drain
from peercached.peer.handover.giver import Giver
from peercached.peer.handover.move import Move
from peercached.peer.handover.parts import Offers
from peercached.peer.handover.push import Push
from peercached.peer.handover.replicas import Replicas
from peercached.peer.handover.spill import Spill

if TYPE_CHECKING:
    from peercached._native import Engine


class Settings(Protocol):
    @property
    def config(self) -> Config: ...


class Handover:
    """Use it on the event loop's thread. `settings.config` is the one in force. `withdraw`, `drop`,
    `announce`, `leave` and `may_give` are those of Drain."""

    def __init__(
        self,
        engine: Engine,
        placement: Placement,
        offers: Offers,
        settings: Settings,
        timeout_s: float,
        *,
        withdraw: Callable[[bytes, bool], Awaitable[int]],
        drop: Callable[[bytes], Awaitable[None]],
        announce: Callable[[bool], None],
        leave: Callable[[], Awaitable[None]],
        may_give: Callable[[], bool],
    ) -> None:
        self.drain = Drain(engine, placement, offers, announce, withdraw, drop, leave, may_give)
        self._giver = Giver(engine, placement, offers, withdraw, drop)
        self.move = Move(engine, placement, self._giver, may_give)
        pool_bytes = settings.config.pool_size

        def may_push() -> bool:
            return self.drain.takes_sets and may_give()

        self._push = Push(engine, self._giver, may_push, settings.config.write_policy)
        self.spill = Spill(
            engine,
            placement,
            offers,
            self._giver,
            may_push,
            pool_bytes,
            lambda: settings.config.spill_bytes_per_s,
        )
        self._replicas = Replicas(
            engine,
            lambda: int(settings.config.replica_share * pool_bytes),
            timeout_s,
        )

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
