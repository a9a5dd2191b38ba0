"""Serves peers' requests on this node, behind the gRPC service."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from peercached.cold.tier import ColdStore
from peercached.directory.placement import Placement
from peercached.membership import Heartbeat, HeartbeatAnswer, NodeAddress
from peercached.peer.channels.accepts import Accepts
from peercached.peer.directory.page_names import PageNames
from peercached.peer.directory.promotes import Promotes
from peercached.peer.directory.shared_epochs import NotPersisted, SharedEpochs
from peercached.peer.handover.adopts import Adopts
from peercached.peer.membership.cluster import Cluster
from peercached.peer.pins.pins import Pins
from peercached.peer.rpc.failures import Unable
from peercached.proto import peer_pb2 as pb


class Overview(Protocol):
    """Serves other nodes' dashboards. A protocol, so that this package does not import
    overview/overview.py, which itself calls peers."""

    def summary_json(self) -> str: ...

    async def here(self) -> pb.OverviewReply: ...


class TakesHints(Protocol):
    """Serves other nodes' hints: hints/here.py, which itself calls peers."""

    async def serve(self, caller: NodeAddress, request: pb.HintRequest) -> pb.HintReply: ...


@dataclass(eq=False)
class LocalNode:
    """On the event loop's thread. ValueError: the caller sent an invalid value. LookupError: the
    caller is not in our view. Unable: not now."""

    _placement: Placement
    _cluster: Cluster
    epochs: SharedEpochs
    accepts: Accepts
    adopts: Adopts
    overview: Overview
    promotes: Promotes
    pins: Pins
    hints: TakesHints
    names: PageNames
    cold: ColdStore

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
        raised = self.epochs.raise_for(caller, namespace_id, epoch)
        try:
            await self.epochs.persisted()
        except NotPersisted as error:
            raise Unable(str(error)) from error
        return raised, self._placement.view.number
