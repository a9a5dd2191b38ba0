"""Takes sets only while the cluster accepts this node and this node does not drain."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peercached.peer.handover.drain import Drain
from peercached.peer.membership.cluster import Cluster
from peercached.peer.removals.catch_up import RemovalCatchUp

if TYPE_CHECKING:
    from peercached._native import Engine


class Intake:
    """On the event loop's thread."""

    def __init__(
        self, engine: Engine, cluster: Cluster, catch_up: RemovalCatchUp, drain: Drain
    ) -> None:
        self._engine = engine
        self._cluster = cluster
        self._catch_up = catch_up
        self._drain = drain

    def tend(self, now: float) -> None:
        """Removals do not reach a node that is out, so a page set here meanwhile could be read
        after its removal."""
        del now
        is_out = bool(self._cluster.waits) or self._catch_up.is_held_out
        self._engine.set_taking(self._drain.takes_sets and not is_out)
