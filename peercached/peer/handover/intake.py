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

    @property
    def refusal(self) -> str:
        """Why this node takes no sets; empty if it takes them. Removals do not reach a node that is
        out, so a page set here meanwhile could be read after its removal."""
        if not self._drain.takes_sets:
            return f"it drains: {self._drain.progress.state}"
        if reason := self._cluster.waits:
            return f"it waits to join the cluster: {reason}"
        if self._catch_up.is_held_out:
            return "it may have missed removals, and has yet to ask other nodes"
        return ""

    def tend(self, now: float) -> None:
        del now
        self._engine.set_taking(not self.refusal)
