"""Takes sets only while the cluster accepts this node and this node does not drain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from peercached.peer.handover.drain import Drain
from peercached.peer.membership.cluster import Cluster
from peercached.peer.removals.catch_up import RemovalCatchUp

if TYPE_CHECKING:
    from peercached._native import Engine


@dataclass(eq=False)
class Intake:
    """On the event loop's thread."""

    _engine: Engine
    _cluster: Cluster
    _catch_up: RemovalCatchUp
    _drain: Drain

    def tend(self, now: float) -> None:
        """Removals do not reach a node that is out, so a page set here meanwhile could be read
        after its removal."""
        del now
        is_out = bool(self._cluster.waits) or self._catch_up.is_held_out
        self._engine.set_taking(self._drain.takes_sets and not is_out)
