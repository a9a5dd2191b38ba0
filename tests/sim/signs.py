"""Signs of life in virtual time, as the real data planes would deliver them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.fake_engine import Heard

if TYPE_CHECKING:
    from sim.cluster import SimNode


class Signs:
    """The signs of life of one node. Every engine of the cluster has one of these in `signs`."""

    def __init__(self, node: SimNode) -> None:
        self._node = node
        self._own = (0, 0, 0, False)
        self._until = 0.0
        self._next_at: dict[int, float] = {}  # incarnation -> time of its next sign

    def say(
        self, view_number: int, sequence: int, is_master: bool, for_s: float, mark: int
    ) -> None:
        self._own = (view_number, sequence, mark, is_master)
        self._until = self._node.clock + for_s

    def take(self) -> list[Heard]:
        """New signs of the peers that can exchange messages with this node, at the usual
        intervals."""
        us, heard = self._node, []
        for node in us.daemon.placement.nodes.values():
            incarnation = node.address.incarnation
            peer = us.cluster.process(node.address)
            if peer is None or peer is us or not self._hears(peer):
                continue
            if us.clock < self._next_at.get(incarnation, 0.0):
                continue
            theirs: Signs = peer.engine.signs
            if theirs._own[0] == 0 or peer.clock >= theirs._until:
                continue
            self._next_at[incarnation] = us.clock + us.daemon.timing.sign_wait_s
            heard.append((incarnation, *theirs._own, 0.0, 0.0))
        return heard

    def _hears(self, peer: SimNode) -> bool:
        us, cuts = self._node.name, self._node.cluster.net.cuts
        return peer.answers() and not cuts & {(us, peer.name), (peer.name, us)}
