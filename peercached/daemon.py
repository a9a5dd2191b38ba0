"""The composition root: builds the node from its parts, and starts and stops them in order."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from peercached.admin.status import Status
from peercached.config import Config
from peercached.data_plane import serve_workers
from peercached.directory import ring_report
from peercached.directory.epoch_store import EpochStore
from peercached.directory.epochs import Epochs
from peercached.directory.local import LocalShard
from peercached.directory.native import Native
from peercached.directory.owner import OwnerSide
from peercached.directory.placement import Placement, RingBuilder
from peercached.directory.publisher import Publisher
from peercached.events import Events
from peercached.membership import Membership, NodeAddress, Timing, View
from peercached.membership.store import Store
from peercached.node_latencies import latencies
from peercached.node_status import NodeStatus
from peercached.overview.overview import Overview
from peercached.overview.summary import summary_of
from peercached.peer.channels.accepts import Accepts
from peercached.peer.channels.connects import Connects
from peercached.peer.directory.cluster_wide import ClusterWide
from peercached.peer.directory.epoch_catch_up import catch_up
from peercached.peer.directory.lookups import Lookups
from peercached.peer.directory.promotes import Promotes
from peercached.peer.directory.streams import Streams
from peercached.peer.drain.adopts import Adopts
from peercached.peer.drain.drain import Drain, Limits
from peercached.peer.membership.cluster import Cluster
from peercached.peer.membership.embedded.heartbeats import Heartbeats
from peercached.peer.membership.embedded.life_signs import LifeSigns
from peercached.peer.membership.etcd.client import EtcdClient
from peercached.peer.membership.etcd.membership import EtcdMembership
from peercached.peer.membership.view_keeper import ViewKeeper
from peercached.peer.removals.catch_up import RemovalCatchUp
from peercached.peer.removals.driver import RemovalDriver
from peercached.peer.removals.member import Removals
from peercached.peer.rpc.auth import Secret, Sessions
from peercached.peer.rpc.client import Peers
from peercached.peer.rpc.failure_detector import FailureDetector
from peercached.peer.rpc.failures import Disconnected
from peercached.peer.rpc.tls import Tls
from peercached.peer.service.local_node import LocalNode
from peercached.peer.service.server import PeerServer
from peercached.peer.service.servicer import PeerServicer
from peercached.periodic import Periodic
from peercached.removals.store import RemovalStore
from peercached.service.settings import Settings
from peercached.view_changes import ViewChanges
from peercached.web.api import api_routes
from peercached.web.dashboard import dashboard_routes
from peercached.web.routes import routes
from peercached.web.server import Handler, WebServer

if TYPE_CHECKING:
    from peercached._native import Engine

log = logging.getLogger(__name__)

TICK_S = 0.1
FLUSH_S = 1.0
LEAVE_S = 0.5
# How long a start waits for the others' records, so that a hanging member cannot block it.
START_SYNC_S = 0.5
START_LOOK_S = 0.01
SERVER_GRACE_S = 0.2


class StartRefused(RuntimeError):
    """The cluster refuses this node; the text says why and what to do."""


class Daemon:
    """One node. Call start() and stop() once each, on one event loop."""

    def __init__(
        self,
        config: Config,
        engine: Engine,
        native: Native,
        secret: Secret,
        tls: Tls | None,
        incarnation: int,
        rank: int | None,
        ring: RingBuilder,
        remembered: View | None = None,
    ) -> None:
        self.config = config
        self.engine = engine
        timeout_s = config.rpc_timeout_ms / 1000
        self.timing = Timing(config.heartbeat_interval_s, config.member_ttl_s)
        address = NodeAddress(
            config.node_id,
            incarnation,
            config.host,
            config.meta_port,
            config.data_port or engine.data_port,
            config.pool_size,
            engine.rails,
            secret.key.public if secret.key is not None else b"",
        )
        self.secret = secret
        self.tls = tls
        self.peers = Peers(lambda: self.placement.own.address, secret, tls, timeout_s)
        self.views = ViewChanges(self)
        self.peers.on_session = self.views.on_session
        self.placement = Placement(engine, address, ring, native, config.directory_replicas)
        self.peers.member_at = self.placement.member_at
        self.epochs = Epochs(engine, EpochStore(config.state_dir, config.node_id), time.monotonic)
        self.keeper = ViewKeeper(Store(config.state_dir, config.node_id))
        self.cluster = self._make_cluster(address, rank, remembered, tls)
        self.owner_side = OwnerSide(engine)
        self.local = LocalShard(engine, native)
        self.local.on_refused = self.owner_side.own_records_refused
        self.failures = FailureDetector(engine, self.placement, self.peers, timeout_s)
        self.streams = Streams(
            engine,
            native,
            self.placement,
            self.owner_side,
            self.local,
            self.peers,
            self.failures,
        )
        self.publisher = Publisher(
            engine,
            self.local,
            self.streams,
            config.publish_timeout_ms / 1000,
            self.placement,
        )
        self.streams.publisher = self.publisher
        self.lookups = Lookups(
            engine, native, self.placement, self.owner_side, self.peers, self.failures, timeout_s
        )
        self.connects = Connects(engine, self.placement, self.peers, self.failures, timeout_s)
        self.accepts = Accepts(engine, self.placement)
        self.failures.on_suspect = self.views.on_suspect
        self.node_status = NodeStatus(self)
        self.overview = Overview(
            self.placement,
            self.peers,
            lambda: summary_of(Status.model_validate(dict(self.status()))),
            self.node_status.members,
            config.max_masters,
        )
        self.promotes = Promotes(
            engine, native, self.placement, self.peers, self.failures, timeout_s
        )
        self.node = LocalNode(
            engine,
            native,
            self.placement,
            self.owner_side,
            self.publisher,
            self.cluster,
            self.epochs,
            self.accepts,
            Adopts(engine, self.placement, self.epochs, timeout_s),
            self.overview,
            self.promotes,
            timeout_s,
            self._handle_events,
        )
        self.sessions = Sessions(
            secret,
            lambda: self.placement.own.address,
            engine.admit_reader,
            engine.expel_reader,
            self._member_like,
        )
        self.removals = Removals(
            engine,
            self.placement,
            RemovalStore(config.state_dir, config.node_id, secret.cluster_key()),
            self.node.published,
            self.cluster.has_left,
            self.epochs,
        )
        self.removal_driver = RemovalDriver(
            self.removals,
            self.placement,
            self.peers,
            self.failures,
            timeout_s,
            lambda: self.cluster.waits,
        )
        self.cluster_wide = ClusterWide(
            engine,
            self.placement,
            self.peers,
            self.lookups,
            self.failures,
            self.epochs,
            self.removal_driver,
            timeout_s,
        )
        self.removal_catch_up = RemovalCatchUp(
            engine,
            self.placement,
            self.peers,
            self.removals,
            timeout_s,
            self.timing.recovery_wait_s,
            self.streams.resync_all,
            lambda: self.cluster.waits,
        )
        self.servicer = PeerServicer(
            self.node,
            self.removals,
            self.removal_catch_up,
            self.sessions,
            tls,
            config.data_sealed,
        )
        self.servicer.on_call = self.failures.called_by
        self.server = PeerServer(self.servicer, tls)
        self.drain = Drain(
            engine,
            self.placement,
            self.peers,
            self.lookups,
            self.failures,
            self._announce_drain,
            self.node.withdraw_here,
            self.node.drop_here,
            self._leave_for_good,
            lambda: self.removals.vouches,
            timeout_s,
        )
        self.events = Events(
            engine,
            self.placement,
            self.publisher,
            self.streams,
            self.lookups,
            self.cluster_wide,
            self.failures,
            self.connects,
            self.promotes,
            self.removal_driver,
        )
        self.started_at = time.monotonic()
        self._starting = True
        self._trimming: asyncio.Future[int] | None = None
        self._ticker = Periodic(
            TICK_S,
            [
                self._suspect_late_owners,
                lambda _: self._take_sets_or_not(),
                self.streams.check,
                self.promotes.tell_used,
                self.owner_side.tend,
                self.removal_driver.tend,
                self.removal_catch_up.tend,
                self._log_notices,
                self._trim,
            ],
        )
        self.settings = Settings.fixed(config)
        self.web = WebServer(config.metrics_host, config.metrics_port, self._web_routes())

    def _make_cluster(
        self, address: NodeAddress, rank: int | None, remembered: View | None, tls: Tls | None
    ) -> Cluster:
        config, timing = self.config, self.timing
        if config.membership == "etcd":
            return EtcdMembership(
                address,
                EtcdClient(config.etcd_endpoints, tls, timing.etcd_deadline_s),
                config.etcd_prefix,
                timing,
                self.peers,
                self.epochs,
                self.views.apply,
                self._on_refused,
                remembered,
            )
        membership = Membership(
            address,
            config.discovery_addr,
            rank,
            timing,
            time.monotonic(),
            random.Random(),
            config.max_masters,
            remembered,
            self.placement.suspects,
        )
        return Heartbeats(
            membership,
            timing,
            self.peers,
            self.epochs,
            LifeSigns(self.engine),
            self.views.apply,
            self._on_refused,
        )

    def _web_routes(self) -> dict[str, Handler]:
        timed = partial(latencies, self)
        found = routes(self.status, timed)
        if self.config.metrics_dashboard:
            found |= api_routes(self.status, timed, self.overview.document, self.locate)
            found |= dashboard_routes()
        return found

    def _take_sets_or_not(self) -> None:
        """Takes sets only while the cluster accepts this node. Removals do not reach a node that is
        out, so a page set here meanwhile could be read after its removal."""
        is_out = bool(self.cluster.waits) or self.removal_catch_up.is_held_out
        self.engine.set_taking(self.drain.takes_sets and not is_out)

    def _member_like(self, caller: NodeAddress) -> NodeAddress | None:
        node = self.placement.find(caller.node_id, caller.incarnation)
        return node.address if node is not None else None

    # --- life

    async def start(self) -> None:
        """OSError or RuntimeError with the remedy if the node cannot start."""
        self.views.apply(self.cluster.view)
        self._ticker.start()
        self.events.start()
        if self.config.clustered:
            await self.server.start(self.config.host, self.config.meta_port)
            self.cluster.start()
            timing = self.timing
            await self.cluster.settle(
                timing.call_deadline_s + timing.replace_after_s + 2 * timing.heartbeat_interval_s
            )
            if self.cluster.refused:
                raise StartRefused(self.cluster.refused)
            await self._learn_what_was_cleared()
            await self.removal_catch_up.run()
        else:
            self.removals.vouch()
        # Only now may others find pages of an earlier start: missed clears and removals are known.
        self.engine.begin_serving()
        self.streams.start()
        await self._hear_of_all_pages()
        self.removal_driver.start()
        self._starting = False
        self.epochs.keeper.raised()  # recovered pages may carry newer epochs: store them
        self._take_sets_or_not()
        serve_workers(self.engine, self.config)

    async def _learn_what_was_cleared(self) -> None:
        """Catches up on clears, or workers would get pages that were cleared while we were away."""
        others = [n for n in self.placement.nodes.values() if n is not self.placement.own]
        masters = {str(master["node_id"]) for master in self.cluster.document()["masters"]}
        timeout_s = self.config.rpc_timeout_ms / 1000
        await catch_up(self.epochs, self.peers, others, masters, timeout_s)

    async def _hear_of_all_pages(self) -> None:
        """Waits for all holders' records. If two nodes start together, they may own both copies of
        a record before they hear of it, and workers would miss a page that is there."""
        deadline = time.monotonic() + START_SYNC_S
        while self.owner_side.unsynced():
            if time.monotonic() >= deadline:
                return
            await asyncio.sleep(START_LOOK_S)

    async def stop(self) -> None:
        """Flushes the streams, leaves the cluster, and stops all parts, each within a timeout."""
        if self.config.clustered and not self._starting:
            await self.drain.stop()
            await self._flush()
        if self.config.clustered and (not self._starting or len(self.placement.nodes) > 1):
            # Serve nothing once we have left: removals reach members only.
            self.engine.end_serving()
            await self._leave()
        await self.cluster.stop()
        self.overview.stop()
        self.events.stop()
        # Off the loop: the stop joins threads that may still need an answer from it.
        await asyncio.get_running_loop().run_in_executor(None, self.engine.stop)
        await self.server.stop(SERVER_GRACE_S)
        self.accepts.stop()
        self.views.stop()
        self._ticker.stop()
        await self.removal_catch_up.stop()
        await self.removal_driver.stop()
        await self.removals.stop()
        await self.lookups.stop()
        await self.promotes.stop()
        await self.failures.stop()
        await self.streams.stop()
        await self.keeper.stop()
        await self.epochs.keeper.stop()
        await self.peers.close()
        self.connects.end()

    def _announce_drain(self, drains: bool) -> None:
        if not self.config.clustered:
            return
        if drains:
            self.cluster.announce_drain()
        else:
            self.cluster.announce_stay()

    async def _leave_for_good(self) -> None:
        """Leaves the cluster; the process stays alone until it ends. It serves no pages any more,
        because removals reach members only."""
        await self._flush()
        self.engine.end_serving()
        await self._leave()
        await self.cluster.stop()
        self.views.apply(View.alone(self.placement.own.address))

    async def _leave(self) -> None:
        try:
            await self.cluster.leave(LEAVE_S)
        except Exception as error:
            log.info(
                "left the cluster, but not all masters confirmed it: %r (they notice after "
                "member_ttl_s)",
                error,
            )

    async def _flush(self) -> None:
        deadline = time.monotonic() + FLUSH_S
        self.events.drain()
        while not (self.streams.idle() and self.publisher.idle):
            if time.monotonic() >= deadline:
                log.info(
                    "stopping with unacknowledged records after waiting %g s: harmless, owners "
                    "drop the records of a node that left",
                    FLUSH_S,
                )
                return
            await asyncio.sleep(0.01)

    def _suspect_late_owners(self, now: float) -> None:
        for owner in self.publisher.expire(now):
            if owner in self.placement.nodes:
                node = self.placement.nodes[owner]
                # However short the timeout: the next set would wait for this owner, too.
                late = f"{node.address.endpoint} did not take records in time"
                self.failures.failed(node, Disconnected(late))

    def _log_notices(self, now: float) -> None:
        del now
        for sentence in self.engine.take_notices():
            log.warning("%s", sentence)

    def _trim(self, now: float) -> None:
        trims = self._trimming is not None and not self._trimming.done()
        if not trims and self.placement.trim_due(now):
            loop = asyncio.get_running_loop()
            self._trimming = loop.run_in_executor(None, self.engine.shard_trim)

    def _handle_events(self) -> None:
        self.events.drain()

    def _on_refused(self, reason: str) -> None:
        if not self._starting:
            log.error(
                "the cluster refuses this node: %s (fix that, then restart this daemon)", reason
            )

    def take(self, settings: Settings) -> None:
        """Follows changes of the keys that may change at run time."""
        self.settings = settings
        settings.on_change(lambda config: self.publisher.wait_at_most(config.publish_timeout_ms))

    # --- for operators (operations.py)

    def status(self) -> Mapping[str, Any]:
        return self.node_status.document()

    async def locate(self, namespace: str, key: bytes) -> Mapping[str, Any]:
        return await self.cluster_wide.locate(namespace, key)

    def ring(self) -> Mapping[str, Any]:
        return ring_report.document(
            self.engine, self.placement, self.owner_side, self.local, self.streams.status()
        )

    def start_drain(self, bytes_max: int, seconds: float, stay: bool) -> None:
        self.drain.start(Limits(bytes_max, seconds, stay))

    async def undrain(self) -> None:
        await self.drain.undo()

    async def clear(self, namespace: str) -> list[str]:
        return await self.cluster_wide.clear(namespace)

    async def forget_node(self, node_id: str) -> list[str]:
        return await self.removal_driver.forget_everywhere(node_id)
