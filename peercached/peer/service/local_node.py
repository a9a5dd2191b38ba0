"""Serves peers' requests on this node, behind the gRPC service."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

from peercached.directory.epoch_keeper import NotKept
from peercached.directory.epochs import Epochs
from peercached.directory.layout import NO_HOLDER, check_digests, holders_of, pack_mapping
from peercached.directory.messages import Ack, Batch
from peercached.directory.native import Native
from peercached.directory.owner import OwnerSide
from peercached.directory.placement import Change, Node, Placement
from peercached.directory.publisher import Publisher
from peercached.membership import Heartbeat, HeartbeatAnswer, NodeAddress
from peercached.peer.channels.accepts import Accepts
from peercached.peer.directory.promotes import Promotes
from peercached.peer.handover.adopts import Adopts
from peercached.peer.membership.cluster import Cluster
from peercached.peer.pins.pins import Pins
from peercached.peer.rpc.failures import Unable
from peercached.peer.rpc.tasks import Tasks
from peercached.proto import peer_pb2 as pb

if TYPE_CHECKING:
    from peercached._native import Engine

log = logging.getLogger(__name__)

DIGESTS_MAX = 1 << 17
# Share of the timeout for the owners' acknowledgements. The caller's own RPC needs the rest.
_TAKE_BACK_SHARE = 0.5

SendAck = Callable[[Ack], Awaitable[None]]


class Overview(Protocol):
    """Serves other nodes' dashboards. A protocol, so that this package does not import
    overview/overview.py, which itself calls peers."""

    def summary_json(self) -> str: ...

    async def here(self) -> pb.OverviewReply: ...


class LocalNode:
    """On the event loop's thread. ValueError: the caller sent an invalid value. LookupError: the
    caller is not in our view. Unable: not now."""

    def __init__(
        self,
        engine: Engine,
        native: Native,
        placement: Placement,
        owner_side: OwnerSide,
        publisher: Publisher,
        cluster: Cluster,
        epochs: Epochs,
        accepts: Accepts,
        adopts: Adopts,
        overview: Overview,
        promotes: Promotes,
        pins: Pins,
        timeout_s: float,
        handle_events: Callable[[], None],
    ) -> None:
        self._engine = engine
        self._native = native
        self._placement = placement
        self._owner_side = owner_side
        self._publisher = publisher
        self._cluster = cluster
        self.epochs = epochs
        self.accepts = accepts
        self.adopts = adopts
        self.overview = overview
        self.promotes = promotes
        self.pins = pins
        self._timeout_s = timeout_s
        self._handle_events = handle_events
        self._senders: dict[Node, tuple[int, SendAck]] = {}
        self._tasks = Tasks()

    def address(self) -> NodeAddress:
        return self._placement.own.address

    # --- membership

    def heartbeat(
        self, beat: Heartbeat, epochs: list[tuple[bytes, int]]
    ) -> tuple[HeartbeatAnswer, list[tuple[bytes, int]]]:
        # First the view: a member that returns teaches with the heartbeat that lets it in.
        answer = self._cluster.on_heartbeat(beat)
        self.epochs.hear(beat.sender.address, epochs)
        return answer, self.epochs.some()

    async def probe(self, target: NodeAddress) -> bool:
        """Whether a member lives, for a master that misses its heartbeats. LookupError if our view
        does not have this member at this address."""
        known = self._placement.find(target.node_id, target.incarnation)
        if known is None or known.address.endpoint != target.endpoint:
            raise LookupError(f"{target.node_id} is not in our view")
        return await self._cluster.reaches(target)

    async def raise_epoch(
        self, caller: NodeAddress, namespace_id: bytes, epoch: int
    ) -> tuple[int, int]:
        """Returns (epoch in force, our view's number). Unable: the epoch is in force but not
        stored, so a restart would forget it."""
        raised = self.epochs.tell(caller, namespace_id, epoch)
        try:
            await self.epochs.keeper.kept()
        except NotKept as error:
            raise Unable(str(error)) from error
        return raised, self._placement.view.number

    # --- directory, as an owner

    def open_stream(self, caller: NodeAddress, epoch: int, send: SendAck) -> Node:
        """Returns the holder, for `batch`."""
        node = self._placement.member(caller)
        self._senders[node] = (epoch, send)
        return node

    def batch(self, holder: Node, batch: Batch) -> Ack | None:
        if not self._is_member(holder):
            raise LookupError(f"{holder.address.node_id} is not in our view any more")
        return self._owner_side.batch(holder.index, batch)

    def close_stream(self, holder: Node, epoch: int) -> None:
        if self._senders.get(holder, (None, None))[0] == epoch:
            del self._senders[holder]
        if self._is_member(holder):
            self._owner_side.closed(holder.index, epoch)

    def _is_member(self, holder: Node) -> bool:
        """Compares the node itself: its index may be reused, and stream epochs are not unique."""
        return self._placement.nodes.get(holder.index) is holder

    def view_changed(self, change: Change) -> None:
        """Sends the acknowledgements that waited for this view."""
        waited = self._owner_side.set_view(change.view.number, self._placement.nodes)
        for holder, epoch, ack in waited:
            sender = self._senders.get(self._placement.nodes[holder])
            if sender is not None and sender[0] == epoch:
                self._tasks.spawn(_send(sender[1], ack))

    def lookup(
        self, digests: bytes, view_number: int
    ) -> tuple[list[tuple[str, int]], bytes, bool, int]:
        """Returns (holder table, rows, final, our view's number). `final`: rows are complete."""
        check_digests(digests, DIGESTS_MAX)
        rows = self._engine.shard_lookup(digests)
        table: list[tuple[str, int]] = []
        mapping: dict[int, int] = {}
        nodes = self._placement.nodes
        for holder in holders_of(rows):
            node = nodes.get(holder)
            if node is None:
                mapping[holder] = NO_HOLDER
                continue
            mapping[holder] = len(table)
            table.append((node.address.node_id, node.address.incarnation))
        if rows:
            rows = self._native.map_rows(rows, pack_mapping(mapping))
        final = self._owner_side.final(view_number)
        return table, rows, final, self._placement.view.number

    # --- as a holder

    async def drop_here(self, records: bytes) -> None:
        """Drops the pages of these records from the pool after another node took them. Copies on
        our disk stay, and can be found."""
        self._engine.drop_moved(records)
        await self.published()

    async def withdraw_here(self, records: bytes, unless_pinned: bool) -> int:
        """Withdraws these records at the owners, who keep those of copies on our disk. Readers that
        looked them up before can still read the pages. A page that was set again meanwhile has
        another record, which stays. `unless_pinned`: so do pages that are pinned here. Returns how
        many pages leave the pool."""
        leaving = self._engine.give_away(records, unless_pinned)
        await self.published()
        return leaving

    async def published(self, rows: bytes = b"") -> list[str]:
        """Sends withdrawals behind all earlier records, and awaits the owners. Returns the node ids
        of owners that may still name this node for the withdrawn pages."""
        # Events with these pages' records may still be queued. Send them first: a record that
        # arrives after its withdrawal would stay for ever. Recent evictions may be queued too.
        self._handle_events()
        # Wait for the owners, so that a later lookup finds nothing.
        known: asyncio.Future[set[int]] = asyncio.get_running_loop().create_future()
        left_s = self._timeout_s * _TAKE_BACK_SHARE

        def done(failed: set[int]) -> None:
            # If the waiter has given up, set_result would raise into the publisher.
            if not known.done():
                known.set_result(failed)

        self._publisher.take_back(rows, time.monotonic(), left_s, done)
        nodes = self._placement.nodes
        return sorted(nodes[i].address.node_id for i in await known if i in nodes)


async def _send(send: SendAck, ack: Ack) -> None:
    try:
        await send(ack)
    except Exception as error:
        # The stream has ended; the holder opens a new one.
        log.debug("a late acknowledgement was not sent: %s", error)
