"""How this node leaves its cluster: after a drain, or because its process ends."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from peercached.directory.placement import Placement
from peercached.membership import View
from peercached.news import News
from peercached.peer.directory.own_records import OwnRecords
from peercached.peer.membership.cluster import Cluster, ViewFound

if TYPE_CHECKING:
    from peercached._native import Engine

log = logging.getLogger(__name__)

LEAVE_S = 0.5


@dataclass(eq=False)
class Goodbye:
    """Use it on the event loop's thread."""

    _engine: Engine
    _placement: Placement
    _cluster: Cluster
    _own_records: OwnRecords
    _news: News
    _is_clustered: bool
    has_left: int = field(default=False, init=False)

    @property
    def why_outside(self) -> str:
        """Why this node is no member of its cluster. Empty if it is one, or a cluster alone."""
        if self.has_left:
            return "it has left the cluster"
        return "it is not a member yet" if self._cluster.outside else ""

    def announce(self, drains: bool) -> None:
        """Tells the other nodes whether this node drains."""
        if not self._is_clustered:
            return
        if drains:
            self._cluster.announce_drain()
        else:
            self._cluster.announce_stay()

    async def leave(self) -> None:
        try:
            await self._cluster.leave(LEAVE_S)
        except Exception as error:
            log.info(
                "left the cluster, but not all masters confirmed it: %r (they notice after "
                "member_ttl_s)",
                error,
            )

    async def leave_for_good(self) -> None:
        """The process stays alone until it ends. It serves no pages any more, because removals
        reach members only."""
        await self._own_records.told()
        self.has_left = True
        self._engine.end_serving()
        await self.leave()
        await self._cluster.stop()
        self._news.post(ViewFound(View.alone(self._placement.own.address)))
