"""Cuts a simulated network, and checks whether the nodes agree on one view."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from peercached.membership import NodeAddress, View
from sim.net import Net


class Viewer(Protocol):
    name: str
    address: NodeAddress

    @property
    def view(self) -> View:
        """The view that the node has adopted."""


class Agreement:
    """Cuts and agreement of the live processes in `nodes`, which is keyed by node name."""

    net: Net
    nodes: Mapping[str, Viewer]

    def run(self, seconds: float) -> None:
        raise NotImplementedError

    def describe(self) -> str:
        raise NotImplementedError

    def cut(self, some: list[str], others: list[str], both_ways: bool = True) -> None:
        for a in some:
            for b in others:
                self.net.cuts.add((a, b))
                if both_ways:
                    self.net.cuts.add((b, a))

    def agreed(self) -> bool:
        """All live nodes have one view, of exactly all live processes."""
        live = {(n.name, n.address.incarnation) for n in self.nodes.values()}
        if len({n.view.number for n in self.nodes.values()}) != 1:
            return False
        view = next(iter(self.nodes.values())).view
        return {(m.node_id, m.address.incarnation) for m in view.members} == live

    def until_agreed(self, limit_s: float, step_s: float = 0.1) -> float:
        """Runs until all agree and returns the seconds it took. Past `limit_s` it raises
        AssertionError, which lists every node's view."""
        began = self.net.now
        while not self.agreed():
            if self.net.now - began > limit_s:
                raise AssertionError(f"no agreement after {limit_s} s:\n{self.describe()}")
            self.run(step_s)
        return self.net.now - began
