"""The composition root: builds the node from its parts, and starts and stops them in order."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from peercached import __version__
from peercached.admin.status import Status
from peercached.config import Config
from peercached.config.shared import shared_settings
from peercached.data_plane.disk import DiskStatus
from peercached.data_plane.latencies import latencies
from peercached.data_plane.recovery import RecoveryStatus
from peercached.data_plane.status import DataPlaneStatus
from peercached.directory import ring_report
from peercached.directory.epoch_store import EpochStore
from peercached.directory.epochs import Epochs
from peercached.directory.placement import Placement, RingBuilder
from peercached.events import Events
from peercached.history.curves import Curves
from peercached.history.departures import Departures
from peercached.history.event_log import EventLog
from peercached.history.findings import FindingEvents
from peercached.history.keeper import HistoryKeeper
from peercached.history.store import HistoryStore
from peercached.membership import Membership, NodeAddress, Timing, View
from peercached.membership.store import Store
from peercached.node_status import Identity, NodeStatus
from peercached.operations import Operations
from peercached.overview.overview import Overview
from peercached.overview.summary import Summary, summary_of
from peercached.peer.channels.accepts import Accepts
from peercached.peer.channels.connects import Connects
from peercached.peer.channels.data_links import DataLinks
from peercached.peer.channels.status import TransportStatus
from peercached.peer.directory.cluster_wide import ClusterWide
from peercached.peer.directory.epoch_catch_up import catch_up
from peercached.peer.directory.followers import Followers
from peercached.peer.directory.prefixes import Prefixes
from peercached.peer.directory.promotes import Promotes
from peercached.peer.directory.records import Records
from peercached.peer.directory.status import DirectoryStatus
from peercached.peer.handover.adopts import Adopts
from peercached.peer.handover.handover import Handover
from peercached.peer.handover.parts import Offers
from peercached.peer.membership.cluster import Cluster
from peercached.peer.membership.embedded.calls import MemberCalls
from peercached.peer.membership.embedded.heads import Heads
from peercached.peer.membership.embedded.heartbeats import Heartbeats
from peercached.peer.membership.embedded.life_signs import LifeSigns
from peercached.peer.membership.etcd.client import EtcdClient
from peercached.peer.membership.etcd.membership import EtcdMembership
from peercached.peer.membership.status import MembershipStatus
from peercached.peer.membership.view_keeper import ViewKeeper
from peercached.peer.pins.pins import Pins
from peercached.peer.pins.prefetch import Prefetch
from peercached.peer.removals.catch_up import RemovalCatchUp
from peercached.peer.removals.driver import HAS_LEFT, RemovalDriver
from peercached.peer.removals.member import Removals
from peercached.peer.rpc.auth import Secret, Sessions
from peercached.peer.rpc.client import Peers
from peercached.peer.rpc.failure_detector import FailureDetector
from peercached.peer.rpc.tls import Tls
from peercached.peer.service.local_node import LocalNode
from peercached.peer.service.relay import Relay
from peercached.peer.service.security import SecurityStatus
from peercached.peer.service.server import PeerServer
from peercached.peer.service.servicer import PeerServicer
from peercached.periodic import Periodic
from peercached.removals.store import RemovalStore
from peercached.service.settings import Settings
from peercached.service.stopping import end_all
from peercached.tracing.tracing import Tracing
from peercached.view_changes import ViewChanges
from peercached.web.api import api_routes
from peercached.web.dashboard import dashboard_routes
from peercached.web.prefix import prefix_routes
from peercached.web.routes import routes
from peercached.web.server import Handler, WebServer

if TYPE_CHECKING:
    from peercached._native import Engine

log = logging.getLogger(__name__)

# Of what sets and lookups wait for, and of the rest. Each tick costs an idle daemon processor time.
TICK_S = 0.1
SLOW_TICK_S = 0.5

LEAVE_S = 0.5
# How long a start waits for the others' records, so that a hanging member cannot block it.
START_SYNC_S = 0.5
START_LOOK_S = 0.01


class StartRefused(RuntimeError):
    """The cluster refuses this node; the text says why and what to do."""


class Daemon:
    """One node. Call start() and stop() once each, on one event loop."""

    def __init__(
        self,
        settings: Settings,
        engine: Engine,
        secret: Secret,
        tls: Tls | None,
        incarnation: int,
        heads: Heads,
        ring: RingBuilder,
        remembered: View | None = None,
        name: str = "",
    ) -> None:
        """`name`: this host's name in its certificate, if it is not its address."""
        config = settings.config
        self.config = config
        self.engine = engine
        self._starting = True
        self.stops_since: float | None = None  # monotonic seconds
        self._has_left = False  # for good, after a drain
        self._timeout_s = config.rpc_timeout_ms / 1000
        self._shared_settings = shared_settings(config)
        self._timing = Timing(config.heartbeat_interval_s, config.member_ttl_s)
        address = NodeAddress(
            config.node_id,
            incarnation,
            config.host,
            config.meta_port,
            config.data_port or engine.data_port,
            config.pool_size,
            engine.rails,
            secret.key.public if secret.key is not None else b"",
            name,
        )
        self._heads = heads
        self.placement = Placement(engine, address, ring, config.directory_replicas)
        self.epochs = Epochs(
            engine,
            EpochStore(config.state_dir, config.node_id),
            time.monotonic,
            self._host_of_member,
        )
        self.status = NodeStatus(engine)
        self.history = EventLog(config.node_id)
        self.curves = Curves(config.node_id, engine)
        self.tracing = Tracing(engine, self.placement, config.otlp_endpoint)
        self._build_rpc(secret, tls)
        self._last_view = remembered  # of an earlier start
        self._build_membership(address, tls)
        self._build_directory(settings)
        self._build_service(secret, tls, settings)
        self.events = Events(
            engine,
            self.placement,
            self.cluster_wide,
            self.failures,
            self.connects,
            self.followers,
            self.promotes,
            self.removal_driver,
            self.pins,
        )
        # All are told in one step of the event loop, so the order matters only where parts say so.
        self.views = ViewChanges(
            self.placement,
            [
                self.failures,
                self.connects,
                self.accepts,
                self.sessions,
                self.removals,
                self.removal_catch_up,
                self.removal_driver,
                self.peers,
                self.links,
                self.keeper,
                self.departures,
            ],
        )
        self._history_keeper = HistoryKeeper(
            self.history, self.departures, HistoryStore(config.state_dir, config.node_id)
        )
        finding_events = FindingEvents(self.history, self.status.findings)
        self.failures.on_suspect(lambda _: finding_events.look_soon())
        self._tickers = (
            Periodic(
                TICK_S,
                [self._take_sets_or_not, self.handover.tend],
            ),
            Periodic(
                SLOW_TICK_S,
                [
                    self.promotes.tell_used,
                    self.removal_driver.tend,
                    self.removal_catch_up.tend,
                    self._log_notices,
                    finding_events.tend,
                    self._history_keeper.tend,
                    self.curves.tend,
                    self.tracing.tend,
                ],
            ),
        )
        self.status.add(
            *self.handover.components,
            self.pins,
            self._adopts,
            self._membership_status,
            self.departures,
            self.failures,
            SecurityStatus(
                config,
                engine,
                self.placement,
                secret,
                tls,
                self.sessions,
                self.servicer,
                self.peers,
            ),
            DirectoryStatus(engine, self.placement),
            RecoveryStatus(self.epochs.keeper),
            self.removal_driver,
            TransportStatus(engine, self.placement, self.connects, self.accepts, config.protocol),
            DataPlaneStatus(engine, config.faults),
            DiskStatus(config.disk_path, self.promotes),
            self.tracing,
            settings,
            Identity(
                config,
                self.placement,
                self.web,
                lambda: self._starting,
                lambda: self.stops_since,
            ),
            self.web,
        )

    def _build_rpc(self, secret: Secret, tls: Tls | None) -> None:
        engine, placement, timeout_s = self.engine, self.placement, self._timeout_s
        self.peers = Peers(
            lambda: placement.own.address,
            secret,
            tls,
            timeout_s,
            placement.member_at,
            self._shared_settings,
            self._name_at,
        )
        self.sessions = Sessions(
            secret,
            lambda: placement.own.address,
            engine.admit_reader,
            engine.expel_reader,
            self._member_like,
        )
        self.failures = FailureDetector(engine, placement, self.peers, timeout_s)
        self.connects = Connects(engine, placement, self.peers, self.failures, timeout_s)
        self.accepts = Accepts(engine, placement)
        self.links = DataLinks(engine, placement, self.peers, self.failures)

    def _build_membership(self, address: NodeAddress, tls: Tls | None) -> None:
        config = self.config
        self.keeper = ViewKeeper(Store(config.state_dir, config.node_id))
        self.cluster = self._make_cluster(address, tls)
        self.peers.keep_also(self.cluster.endpoints)
        self.departures = Departures(self.history, self.cluster.has_left, config.member_ttl_s)
        self._membership_status = MembershipStatus(
            self.engine, self.placement, self.cluster, config.discovery_addr
        )

    def _make_cluster(self, address: NodeAddress, tls: Tls | None) -> Cluster:
        config, timing = self.config, self._timing
        if config.membership == "etcd":
            etcd_tls = tls if tls is not None and tls.calls else None
            return EtcdMembership(
                address,
                EtcdClient(config.etcd_endpoints, etcd_tls, timing.etcd_deadline_s),
                config.etcd_prefix,
                timing,
                self.peers,
                self.epochs,
                self._on_view,
                self._on_refused,
                self._last_view,
                self._shared_settings,
            )
        membership = Membership(
            address,
            list(self._heads.places()),
            self._heads.own_rank,
            timing,
            time.monotonic(),
            random.Random(),
            config.max_masters,
            self._last_view,
            self.placement.suspects,
        )
        return Heartbeats(
            membership,
            timing,
            MemberCalls(self.peers, self.epochs, timing.call_deadline_s, self._heads.problem),
            LifeSigns(self.engine),
            self._on_view,
            self._on_refused,
            self._heads,
        )

    def _build_directory(self, settings: Settings) -> None:
        engine, placement, timeout_s = self.engine, self.placement, self._timeout_s
        engine.set_patience(self.config.publish_timeout_ms)
        settings.on_change(lambda config: engine.set_patience(config.publish_timeout_ms))
        self.records = Records(engine)
        self.followers = Followers(engine, placement, timeout_s)
        self.promotes = Promotes(engine, placement, self.peers, self.failures, timeout_s)

    def _build_service(self, secret: Secret, tls: Tls | None, settings: Settings) -> None:
        """What peers, operators and dashboards ask of this node."""
        config, engine, placement = self.config, self.engine, self.placement
        timeout_s = self._timeout_s
        self.overview = Overview(
            placement,
            self.peers,
            self._summary,
            self._membership_status.members,
            self.departures.document,
            config.max_masters,
        )
        self._adopts = Adopts(engine, placement, self.epochs, timeout_s)
        self.pins = Pins(
            engine,
            placement,
            self.records,
            self.promotes,
            Prefetch(engine, self.promotes),
            self.peers,
            self.failures,
            lambda: int(settings.config.pin_share * config.pool_size),
            timeout_s,
        )
        self.node = LocalNode(
            engine,
            placement,
            self.cluster,
            self.epochs,
            self.accepts,
            self._adopts,
            self.overview,
            self.followers,
            self.promotes,
            self.pins,
        )
        self._build_removals(secret)
        self.handover = Handover(
            engine,
            placement,
            Offers(self.peers, self.records, self.failures, timeout_s),
            settings,
            timeout_s,
            withdraw=self.node.withdraw_here,
            drop=self.node.drop_here,
            announce=self._announce_drain,
            leave=self._leave_for_good,
            may_give=lambda: not self.removals.owes,
        )
        self.operations = Operations(
            engine,
            placement,
            self.records,
            self.cluster_wide,
            self.removal_driver,
            self.handover,
            self.pins,
            self.status,
            self.history,
            self.curves,
            partial(ring_report.document, engine, placement),
            settings,
        )

        def authenticated() -> bool:
            return secret.keeps_strangers_out or (tls is not None and tls.serves)

        self._secret = secret
        self._watch: asyncio.Task[None] | None = None
        self.relay = Relay(self.operations, placement, self.peers, authenticated)
        self.servicer = PeerServicer(
            self.node,
            self.removals,
            self.removal_catch_up,
            self.sessions,
            tls,
            config.data_sealed,
            self.failures.called_by,
            self.relay.answer,
            self._shared_settings,
        )
        self.server = PeerServer(self.servicer, tls)
        if tls is not None:
            settings.on_change(partial(self._take_tls_mode, tls))
        self.web = WebServer(
            config.metrics_host,
            config.metrics_port,
            self._web_routes(),
            self._web_posts(),
            {config.host},
        )

    def _build_removals(self, secret: Secret) -> None:
        config, engine, placement = self.config, self.engine, self.placement
        timeout_s = self._timeout_s
        self.removals = Removals(
            engine,
            placement,
            RemovalStore(config.state_dir, config.node_id, secret.cluster_key()),
            self.followers.told,
            self.cluster.has_left,
            self.epochs,
            self._last_view,
        )
        self.removals.on_forget(self.departures.forget)
        self.removal_driver = RemovalDriver(
            self.removals,
            placement,
            self.peers,
            self.failures,
            timeout_s,
            self._why_outside,
        )
        self.removal_catch_up = RemovalCatchUp(
            engine,
            placement,
            self.peers,
            self.removals,
            timeout_s,
            self._timing.recovery_wait_s,
            lambda: self.cluster.waits,
        )
        self.peers.owes_us = self.removals.must_tell
        self.peers.on_session(self.removal_catch_up.session_begun)
        self.cluster_wide = ClusterWide(
            engine,
            placement,
            self.peers,
            self.records,
            self.failures,
            self.epochs,
            self.removal_driver,
            timeout_s,
        )

    def _web_routes(self) -> dict[str, Handler]:
        timed = partial(latencies, self.engine, self.placement, [])
        status = self.operations.status
        found = routes(status, timed)
        if self.config.metrics_dashboard:
            found |= api_routes(
                self.operations,
                timed,
                self.overview.document,
                self.relay.ask_for_web,
                self.config.metrics_namespace_names,
            )
            found |= dashboard_routes()
        return found

    def _web_posts(self) -> dict[str, Handler]:
        if not self.config.metrics_dashboard:
            return {}
        prefixes = Prefixes(self.engine, self.placement, self.records)
        return prefix_routes(prefixes.digests, prefixes.find)

    # --- what one part asks of others that are built later

    def _on_view(self, view: View) -> None:
        self.views.apply(view)

    def _on_refused(self, reason: str) -> None:
        if not self._starting:
            log.error(
                "the cluster refuses this node: %s (fix that, then restart this daemon)", reason
            )

    def _take_tls_mode(self, tls: Tls, config: Config) -> None:
        if tls.mode != config.tls_mode:
            tls.mode = config.tls_mode
            self.peers.tls_mode_changed()
            self.server.tls_mode_changed()

    def _why_outside(self) -> str:
        """Why this node is no member of its cluster. Empty if it is one, or a cluster alone."""
        if self._has_left:
            return HAS_LEFT
        return "it is not a member yet" if self.cluster.outside else ""

    def _summary(self) -> Summary:
        return summary_of(Status.model_validate(self.status.document()))

    def _member_like(self, caller: NodeAddress) -> NodeAddress | None:
        node = self.placement.find(caller.node_id, caller.incarnation)
        return node.address if node is not None else None

    def _host_of_member(self, caller: NodeAddress) -> str:
        """Empty for a process that is not in our view, or owes. A clear of which only those who
        were away know hides their pages from our removals. So they compare before they tell it."""
        is_heard = self.placement.find_process(caller) and not self.removals.has_debt(caller)
        return self.sessions.host_of(caller) if is_heard else ""

    def _secret_changed(self) -> None:
        dropped = self.peers.secret_changed()
        self.sessions.secret_changed()
        # Heads put such a peer out of the view. With etcd it stays, and nobody else might call it.
        self.failures.ask(dropped)

    # --- periodic

    def _name_at(self, endpoint: str) -> str:
        """The name in the certificate there; empty if it is the address."""
        member = self.placement.member_at(endpoint)
        return member.name if member is not None else self._heads.name_of(endpoint)

    def _take_sets_or_not(self, now: float) -> None:
        """Takes sets only while the cluster accepts this node. Removals do not reach a node that is
        out, so a page set here meanwhile could be read after its removal."""
        del now
        is_out = bool(self.cluster.waits) or self.removal_catch_up.is_held_out
        self.engine.set_taking(self.handover.drain.takes_sets and not is_out)

    def _log_notices(self, now: float) -> None:
        del now
        for sentence in self.engine.take_notices():
            log.warning("%s", sentence)

    # --- life

    async def start(self) -> None:
        """OSError or RuntimeError with the remedy if the node cannot start."""
        self.views.apply(self.cluster.view)
        for ticker in self._tickers:
            ticker.start()
        self.tracing.start()
        self.events.start()
        if self.config.clustered:
            await self.server.start(self.config.host, self.config.meta_port)
            self._watch = asyncio.ensure_future(self._secret.watch(self._secret_changed))
            self.cluster.start()
            timing = self._timing
            await self.cluster.settle(
                timing.call_deadline_s + timing.replace_after_s + 2 * timing.heartbeat_interval_s
            )
            if self.cluster.refused:
                raise StartRefused(self.cluster.refused)
            await self._learn_what_was_cleared()
            await self.removal_catch_up.run()
        else:
            self.removals.owes_nobody()
        # Only now may others find pages of an earlier start: missed clears and removals are known.
        self.engine.begin_serving()
        await self._hear_of_all_pages()
        self.removal_driver.start()
        self.epochs.keeper.raised()  # recovered pages may carry newer epochs: store them
        self._take_sets_or_not(time.monotonic())
        self.engine.start()
        self._starting = False
        self.history.add("started", f"version {__version__}, in view {self.placement.view.counter}")

    async def _learn_what_was_cleared(self) -> None:
        """Catches up on clears, or workers would get pages that were cleared while we were away."""
        others = [n for n in self.placement.nodes.values() if n is not self.placement.own]
        masters = {str(master["node_id"]) for master in self.cluster.document()["masters"]}
        await catch_up(self.epochs, self.peers, others, masters, self._timeout_s)

    async def _hear_of_all_pages(self) -> None:
        """Waits until we have all members' records, and they ours or the beginning of them. Else
        workers would miss pages that are there, or others those that are set here."""
        deadline = time.monotonic() + START_SYNC_S
        while not self.engine.all_have_asked or (
            self.engine.follows and len(self.engine.followed()) < self._others()
        ):
            if time.monotonic() >= deadline:
                return
            await asyncio.sleep(START_LOOK_S)

    def _others(self) -> int:
        return len(self.placement.nodes) - 1

    async def stop(self) -> None:
        """Leaves the cluster and stops all parts, each within a timeout."""
        stops: list[Callable[[], Awaitable[None] | None]] = []
        if self.config.clustered and not self._starting:
            stops += [self.handover.stop, self._tell_followers]
        if self.config.clustered and (not self._starting or len(self.placement.nodes) > 1):
            # Serve nothing once we have left: removals reach members only.
            stops += [self.engine.end_serving, self._leave]
        stops += [
            self._stop_watching,
            self.cluster.stop,
            self.overview.stop,
            self.events.stop,
            self._stop_engine,
            self.server.stop,
            self.accepts.stop,
            self.links.stop,
            *(ticker.stop for ticker in self._tickers),
            self.tracing.stop,
            self.removal_catch_up.stop,
            self.removal_driver.stop,
            self.removals.stop,
            self.records.stop,
            self.promotes.stop,
            self.failures.stop,
            self.keeper.stop,
            self._history_keeper.stop,
            self.epochs.keeper.stop,
            self.peers.close,
            self.connects.end,
        ]
        await end_all(stops)

    def _stop_watching(self) -> None:
        if self._watch is not None:
            self._watch.cancel()

    async def _stop_engine(self) -> None:
        # Off the loop: the stop joins threads that may still need an answer from it.
        await asyncio.get_running_loop().run_in_executor(None, self.engine.stop)

    # --- leaving

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
        await self._tell_followers()
        self._has_left = True
        self.engine.end_serving()
        await self._leave()
        await self.cluster.stop()
        self.views.apply(View.alone(self.placement.own.address))

    async def _tell_followers(self) -> None:
        await self.followers.told()

    async def _leave(self) -> None:
        try:
            await self.cluster.leave(LEAVE_S)
        except Exception as error:
            log.info(
                "left the cluster, but not all masters confirmed it: %r (they notice after "
                "member_ttl_s)",
                error,
            )
