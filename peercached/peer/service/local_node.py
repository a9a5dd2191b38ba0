"""Serves peers' requests on this node, behind the gRPC service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from peercached.directory.epoch_keeper import NotKept
from peercached.directory.epochs import Epochs
from peercached.directory.placement import Placement
from peercached.membership import Heartbeat, HeartbeatAnswer, NodeAddress
from peercached.peer.channels.accepts import Accepts
from peercached.peer.directory.followers import Followers
from peercached.peer.directory.promotes import Promotes
from peercached.peer.handover.adopts import Adopts
from peercached.peer.membership.cluster import Cluster
from peercached.peer.pins.pins import Pins
from peercached.peer.rpc.failures import Unable
from peercached.proto import peer_pb2 as pb

if TYPE_CHECKING:
    from peercached._native import Engine


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
        placement: Placement,
        cluster: Cluster,
        epochs: Epochs,
        accepts: Accepts,
        adopts: Adopts,
        overview: Overview,
        followers: Followers,
        promotes: Promotes,
        pins: Pins,
    ) -> None:
        self._engine = engine
        self._placement = placement
        self._cluster = cluster
        self.epochs = epochs
        self.accepts = accepts
        self.adopts = adopts
        self.overview = overview
        self._followers = followers
        self.promotes = promotes
        self.pins = pins

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

    # --- as a holder

    async def drop_here(self, records: bytes) -> None:
        """Drops the pages of these records from the pool after another node took them. Copies on
        our disk stay, and can be found."""
        self._engine.drop_moved(records)
        await self._followers.told()

    async def withdraw_here(self, records: bytes, unless_pinned: bool) -> int:
        """Withdraws these records; those of copies on our disk stay. Readers that
        looked them up before can still read the pages. A page that was set again meanwhile has
        another record, which stays. `unless_pinned`: so do pages that are pinned here. Returns how
        many pages leave the pool."""
        leaving = self._engine.give_away(records, unless_pinned)
        await self._followers.told()
        return leaving
