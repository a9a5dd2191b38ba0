"""Maps views to the engine's holder indices and to rings of owners."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from peercached.directory.layout import SELF
from peercached.directory.owner_choice import choose_owners
from peercached.membership import NodeAddress, State, View

if TYPE_CHECKING:
    from peercached._native import Engine

log = logging.getLogger(__name__)

# (node id -> holder index, node id -> bytes of its pool) -> packed positions and nodes, as
# Engine.set_ring takes them.
RingBuilder = Callable[[dict[str, int], dict[str, int]], tuple[bytes, bytes]]


@dataclass(slots=True, eq=False)
class Node:
    """A member of the view. Compare nodes by object identity: indices are reused."""

    index: int
    address: NodeAddress
    suspect: bool = False
    data_ready: bool = False  # the engine can READ from it
    data_sealed: bool = False  # READs over TCP use TLS
    leaving: bool = False  # drains: takes no new pages and will leave
    since: float = 0.0  # monotonic seconds: when this node first saw it in a view
    in_views_since: int = 0  # View.since


@dataclass(slots=True)
class Change:
    view: View
    added: list[Node] = field(default_factory=list)
    removed: list[Node] = field(default_factory=list)


class Placement:
    """Not thread safe; `now` is monotonic seconds."""

    def __init__(
        self,
        engine: Engine,
        own_address: NodeAddress,
        build_ring: RingBuilder,
        replicas: int,
    ) -> None:
        self.own = Node(SELF, own_address, data_ready=True)
        self.view = View.of(-1, ())
        self.nodes: dict[int, Node] = {SELF: self.own}
        self._by_id: dict[str, Node] = {own_address.node_id: self.own}
        self._by_endpoint: dict[str, NodeAddress] = {}
        self._engine = engine
        self._build_ring = build_ring
        self.replicas = replicas  # owners per digest, if there are that many nodes

    def apply(self, view: View, now: float) -> Change:
        """Gives the engine the new ring and drops the nodes that left."""
        change = Change(view)
        keep = {SELF}
        for record in view.members:
            member = record.address
            known = self._by_id.get(member.node_id)
            if known is not None and known.address.incarnation == member.incarnation:
                known.address, known.leaving = member, record.state is not State.ALIVE
                keep.add(known.index)
                continue
            try:
                index = self._engine.add_node(member.node_id, member.incarnation)
            except (RuntimeError, ValueError) as error:
                # Without an index its pages are misses here, and our ring leaves it out.
                log.error(
                    "cannot add node %s: %s (its pages are misses here)", member.node_id, error
                )
                continue
            node = Node(index, member, leaving=record.state is not State.ALIVE, since=now)
            self.nodes[index] = node
            keep.add(index)
            change.added.append(node)
        change.removed = [node for index, node in self.nodes.items() if index not in keep]
        for node in change.removed:
            del self.nodes[node.index]
        for node in self.nodes.values():
            node.in_views_since = view.since.get(node.address.node_id, 0)
        self._by_id = {node.address.node_id: node for node in self.nodes.values()}
        self._by_endpoint = {node.address.endpoint: node.address for node in self.nodes.values()}
        for node in change.removed:
            self._engine.drop_node(node.index)
        self._engine.set_ring(*self._build(self.nodes), self.replicas, view.number)
        self.view = view
        return change

    def _build(self, nodes: dict[int, Node]) -> tuple[bytes, bytes]:
        chosen = choose_owners({node.address: node.in_views_since for node in nodes.values()})
        owners = {i: node.address for i, node in nodes.items() if node.address.node_id in chosen}
        return self._build_ring(
            {address.node_id: i for i, address in owners.items()},
            {address.node_id: address.pool_bytes for address in owners.values()},
        )

    @property
    def others(self) -> list[Node]:
        return [node for node in self.nodes.values() if node is not self.own]

    def find(self, node_id: str, incarnation: int) -> Node | None:
        node = self._by_id.get(node_id)
        return node if node is not None and node.address.incarnation == incarnation else None

    def find_process(self, address: NodeAddress) -> Node | None:
        """The member with that node id, incarnation and key; None if there is none."""
        node = self._by_id.get(address.node_id)
        return node if node is not None and node.address.same_process(address) else None

    def member(self, caller: NodeAddress) -> Node:
        """The member that calls. LookupError if it is not in our view."""
        node = self.find_process(caller)
        if node is None:
            raise LookupError(
                f"{caller.node_id} (incarnation {caller.incarnation}) is not in view "
                f"{self.view.number} of {self.own.address.node_id}"
            )
        return node

    def member_at(self, endpoint: str) -> NodeAddress | None:
        """The member to expect at that endpoint."""
        return self._by_endpoint.get(endpoint)
