"""Maps views to the engine's holder indices and to rings of owners. Keeps the former rings."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from peercached.directory.layout import DIGEST_BYTES, ROW_BYTES, SELF, digests_of
from peercached.directory.native import Native, RingTable
from peercached.directory.owner_choice import choose_owners
from peercached.directory.patience import Patience
from peercached.membership import NodeAddress, State, View

if TYPE_CHECKING:
    from peercached._native import Engine

log = logging.getLogger(__name__)

# How long lookups fall back to the owners by a former view, and how long these keep the records.
# Far longer than any resync, short enough to bound the memory.
FORMER_S = 60.0
# Joins come in bursts, and the records may still be at the owners from before the burst. So always
# keep the last fully synced former ring, beside the latest ones.
FORMER_RINGS_MAX = 3


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
    patience: Patience = field(default_factory=Patience)  # timeout of lookups there
    overdue: int = 0  # running lookups there that exceeded `patience`
    since: float = 0.0  # monotonic seconds: when this node first saw it in a view
    in_views_since: int = 0  # View.since


@dataclass(slots=True)
class Change:
    view: View
    added: list[Node] = field(default_factory=list)
    removed: list[Node] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class _FormerRing:
    table: RingTable
    nodes: dict[int, Node]
    settled: bool
    until: float
    in_use: bool = True  # some member may still use this view


class Placement:
    """Not thread safe; `now` is monotonic seconds."""

    def __init__(
        self,
        engine: Engine,
        own_address: NodeAddress,
        build_ring: RingBuilder,
        native: Native,
        replicas: int,
    ) -> None:
        self.own = Node(SELF, own_address, data_ready=True)
        self.view = View.of(-1, ())
        self.nodes: dict[int, Node] = {SELF: self.own}
        self._by_id: dict[str, Node] = {own_address.node_id: self.own}
        self._by_endpoint: dict[str, NodeAddress] = {}
        self._engine = engine
        self._build_ring = build_ring
        self._native = native
        self.replicas = replicas  # owners per digest, if there are that many nodes
        self._packed: tuple[bytes, bytes] | None = None
        self._former: list[_FormerRing] = []
        self._trim_at: float | None = None

    def apply(self, view: View, now: float, settled: bool = False) -> Change:
        """Gives the engine the new ring; then drops the nodes that left. `settled`: the present
        ring is fully synced, as far as we know."""
        before = dict(self.nodes)
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
        if len(before) == 1:
            # We were alone. The others were probably a cluster without us. Their ring counts as the
            # former one: it tells where our new records still are.
            others = {i: node for i, node in self.nodes.items() if i != SELF}
            self._remember(others, self._build(others) if others else None, False, now)
        else:
            self._remember(before, self._packed, settled, now)
        self._packed = self._build(self.nodes)
        self._engine.set_ring(*self._packed, self.replicas, view.number)
        for node in change.removed:
            self._engine.drop_node(node.index)
        self.view = view
        self._trim_at = now + FORMER_S
        return change

    def _build(self, nodes: dict[int, Node]) -> tuple[bytes, bytes]:
        chosen = choose_owners({node.address: node.in_views_since for node in nodes.values()})
        owners = {i: node.address for i, node in nodes.items() if node.address.node_id in chosen}
        return self._build_ring(
            {address.node_id: i for i, address in owners.items()},
            {address.node_id: address.pool_bytes for address in owners.values()},
        )

    def _remember(
        self,
        nodes: dict[int, Node],
        packed: tuple[bytes, bytes] | None,
        settled: bool,
        now: float,
    ) -> None:
        if packed is None:
            return
        self._former = [ring for ring in self._former if now < ring.until]
        if len(self._former) == FORMER_RINGS_MAX:
            oldest, *later = self._former
            keep_oldest = oldest.settled and not any(ring.settled for ring in later)
            del self._former[1 if keep_oldest else 0]
        table = self._native.RingTable(*packed, self.replicas)
        self._former.append(_FormerRing(table, nodes, settled, now + FORMER_S))

    def trim_due(self, now: float) -> bool:
        """True once after each change of the ring, when it is time to drop records that we no
        longer own."""
        if self._trim_at is None or now < self._trim_at:
            return False
        self._trim_at = None
        return True

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

    def suspects(self, address: NodeAddress) -> bool:
        node = self.find_process(address)
        return node is not None and node.suspect

    def former_owners(self, digests: bytes, now: float) -> list[tuple[int, bytes]]:
        """The digests by owner in former views. Leaves out nodes that are gone."""
        parts: list[tuple[int, bytes]] = []
        for ring in self._former:
            if now >= ring.until:
                continue
            for index, part in ring.table.split(digests, DIGEST_BYTES):
                if self.nodes.get(index) is ring.nodes.get(index) is not None:
                    parts.append((index, part))
        return parts

    def everybody_has_the_view(self) -> None:
        """No reader uses a former view any more."""
        for ring in self._former:
            ring.in_use = False

    def former_owners_in_use(
        self, rows: bytes, owned: Mapping[int, bytes], now: float
    ) -> list[tuple[int, bytes]]:
        """Records by former owners that readers with a former view still ask. `owned`: as in
        former_owners_of()."""
        return self._further(
            rows, owned, [ring for ring in self._former if ring.in_use and now < ring.until]
        )

    def former_owners_of(
        self, rows: bytes, owned: Mapping[int, bytes], now: float
    ) -> list[tuple[int, bytes]]:
        """Records by former owners that still keep them; may include ourselves. `owned`: the same
        records by present owner. Leaves out nodes that get all their records that way."""
        return self._further(rows, owned, [ring for ring in self._former if now < ring.until])

    def _further(
        self, rows: bytes, owned: Mapping[int, bytes], rings: list[_FormerRing]
    ) -> list[tuple[int, bytes]]:
        known = dict(owned)
        parts: list[tuple[int, bytes]] = []
        for ring in rings:
            for index, part in ring.table.split(rows, ROW_BYTES):
                if self.nodes.get(index) is not ring.nodes.get(index) or index not in self.nodes:
                    continue
                has = known.get(index, b"")
                if self._native.missing(digests_of(part), has, ROW_BYTES):
                    parts.append((index, part))
                    known[index] = has + part
        return parts
