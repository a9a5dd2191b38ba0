"""Signs of life in virtual time, as the followers of real data planes would bring them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sim.cluster import SimNode

# Incarnation, view number, sequence, epochs mark, is a master, seconds since, and since an answer.
Heard = tuple[int, int, int, int, bool, float, float]


class Signs:
    """Of one node, whose engine has `signs`, too, and so have the others'."""

    def __init__(self, node: SimNode) -> None:
        self._node = node
        self._own = (0, 0, 0, False)
        self._until = 0.0
        self._next_at: dict[int, float] = {}  # by incarnation, when there is one again

    def say(
        self, view_number: int, sequence: int, is_master: bool, for_s: float, mark: int
    ) -> None:
        self._own = (view_number, sequence, mark, is_master)
        self._until = self._node.clock + for_s

    def take(self) -> list[Heard]:
        """Of those that this node reaches, and that reach it: as often as they would come."""
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
