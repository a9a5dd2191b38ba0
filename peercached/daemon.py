"""The parts of a node. Each one uses only parts that are listed before it.

A part that has news for later parts sends an event through `news` to `reactions`, the last part.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

from peercached.cold.tier import ColdStore, ColdTier
from peercached.config.shared import shared_settings
from peercached.data_plane.disk import DiskStatus
from peercached.data_plane.latencies import Latencies
from peercached.data_plane.notices import Notices
from peercached.data_plane.pool import PoolStatus
from peercached.data_plane.recovery import RecoveryStatus
from peercached.data_plane.status import DataPlaneStatus
from peercached.directory.epoch_store import EpochStore
from peercached.directory.first_clears import FirstClears
from peercached.directory.placement import Placement, RingBuilder
from peercached.events import Events
from peercached.hints.budget import Budget
from peercached.hints.executor import Hints
from peercached.hints.here import Here
from peercached.history.curves import Curves
from peercached.history.departures import Departures
from peercached.history.event_log import EventLog
from peercached.history.findings import FindingEvents
from peercached.history.keeper import HistoryKeeper
from peercached.history.store import HistoryStore
from peercached.identity import Identity
from peercached.kv_events.publisher import KvEvents
from peercached.membership import Membership, NodeAddress, Timing, View
from peercached.membership.store import Store
from peercached.node_status import NodeStatus
from peercached.operations import Operations
from peercached.overview.overview import Overview
from peercached.peer.channels.accepts import Accepts
from peercached.peer.channels.connects import Connects
from peercached.peer.channels.data_links import DataLinks
from peercached.peer.channels.status import TransportStatus
from peercached.peer.directory.own_records import OwnRecords
from peercached.peer.directory.page_names import PageNames
from peercached.peer.directory.prefixes import Prefixes
from peercached.peer.directory.promotes import Promotes
from peercached.peer.directory.records import Records
from peercached.peer.directory.shared_epochs import SharedEpochs
from peercached.peer.directory.status import DirectoryStatus
from peercached.peer.handover.adopts import Adopts
from peercached.peer.handover.handover import Handover
from peercached.peer.handover.intake import Intake
from peercached.peer.handover.parts import Offers
from peercached.peer.membership.cluster import Cluster
from peercached.peer.membership.embedded.calls import MemberCalls
from peercached.peer.membership.embedded.heartbeats import Heartbeats
from peercached.peer.membership.embedded.life_signs import LifeSigns
from peercached.peer.membership.etcd.client import EtcdClient
from peercached.peer.membership.etcd.membership import EtcdMembership
from peercached.peer.membership.goodbye import Goodbye
from peercached.peer.membership.status import MembershipStatus
from peercached.peer.membership.view_keeper import ViewKeeper
from peercached.peer.pins.pins import Pins
from peercached.peer.pins.prefetch import Prefetch
from peercached.peer.removals.catch_up import RemovalCatchUp
from peercached.peer.removals.driver import RemovalDriver
from peercached.peer.removals.member import Removals
from peercached.peer.removals.store_markers import StoreMarkers
from peercached.peer.rpc.auth import Secret, Sessions
from peercached.peer.rpc.client import OwnSide, Peers
from peercached.peer.rpc.connection_limits import ConnectionLimits
from peercached.peer.rpc.failure_detector import FailureDetector
from peercached.peer.rpc.heads import Heads
from peercached.peer.rpc.tls import Tls
from peercached.peer.server.auth_interceptor import AuthInterceptor
from peercached.peer.server.cluster_wide import ClusterWide
from peercached.peer.server.handshakes import Handshakes
from peercached.peer.server.local_node import LocalNode
from peercached.peer.server.refusals import Refusals
from peercached.peer.server.relay import Relay
from peercached.peer.server.security import SecurityStatus
from peercached.peer.server.server import PeerServer
from peercached.peer.server.servicer import PeerServicer
from peercached.periodic import Periodic
from peercached.phase import Phase
from peercached.reactions import Reactions
from peercached.removals.debts import Debts
from peercached.removals.store import RemovalStore
from peercached.routers.server import RouterServer
from peercached.routers.servicer import RouterServicer
from peercached.routers.token import Tokens
from peercached.service.settings import Settings
from peercached.tracing.tracing import Tracing
from peercached.web.api import api_routes
from peercached.web.dashboard import dashboard_routes
from peercached.web.hints import closed_routes, hint_routes
from peercached.web.prefix import prefix_routes
from peercached.web.routes import routes
from peercached.web.server import WebServer

if TYPE_CHECKING:
    from peercached._native import Engine

# Of what sets and lookups wait for, and of the rest. Each tick costs an idle daemon processor time.
TICK_S = 0.1
SLOW_TICK_S = 0.5


class Daemon:
    """One node. start_stop.py starts and stops it."""

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
        """`name`: this host's name in its certificate, if it is not its address. `remembered`: the
        last view of an earlier start."""
        config = settings.config
        self.config = config
        self.engine = engine
        engine.set_patience(config.publish_timeout_ms)
        self.timeout_s = timeout_s = config.rpc_timeout_ms / 1000
        self.timing = timing = Timing(config.heartbeat_interval_s, config.member_ttl_s)
        self.phase = phase = Phase()
        shared = shared_settings(config)
        news = settings.news
        address = NodeAddress(
            config.node_id,
            incarnation,
            config.host,
            config.meta_port,
            config.data_port or engine.data_port,
            config.pool_size,
            tuple(sorted(engine.own_transports.items())),
            secret.key.public if secret.key is not None else b"",
            name,
        )

        # What this node knows and tells of itself.
        self.status = status = NodeStatus(engine)
        self.history = history = EventLog(config.node_id)
        self.curves = curves = Curves(config.node_id, engine)
        self.placement = placement = Placement(engine, address, ring, config.directory_replicas)
        self.tracing = tracing = Tracing(engine, placement, config.otlp_endpoint)
        removal_store = RemovalStore(config.state_dir, config.node_id, secret.cluster_key())
        debts = Debts(address, removal_store, engine.state_is_old, engine.removals_last)

        # The ways to other nodes.
        self.peers = peers = Peers(
            OwnSide(placement, secret, tls, timeout_s, shared, heads, debts, news)
        )
        self.sessions = sessions = Sessions(secret, engine, placement)
        self.failures = failures = FailureDetector(engine, placement, peers, news, timeout_s)
        self.connects = connects = Connects(engine, placement, failures, timeout_s)
        self.accepts = accepts = Accepts(engine, placement)
        self.links = links = DataLinks(engine, placement, peers, failures)

        # Records and epochs.
        self.records = records = Records(engine)
        self.own_records = own_records = OwnRecords(engine, placement, timeout_s)
        self.promotes = promotes = Promotes(engine, placement, failures, timeout_s)
        names = PageNames(engine, placement, failures, timeout_s, config.kv_events_port != 0)
        self.kv_events = kv_events = KvEvents(config, engine, lambda: secret.cluster, names.ask)
        epoch_store = EpochStore(config.state_dir, config.node_id)
        self.epochs = epochs = SharedEpochs(
            engine,
            epoch_store,
            FirstClears(time.monotonic),
            placement,
            debts,
            sessions,
        )

        cold_store = ColdStore(engine, config, epochs, secret.cluster_key())

        # Membership.
        self.keeper = keeper = ViewKeeper(Store(config.state_dir, config.node_id))
        self.cluster: Cluster
        if config.membership == "etcd":
            etcd_tls = tls if tls is not None and tls.calls else None
            self.cluster = EtcdMembership(
                address,
                EtcdClient(config.etcd_endpoints, etcd_tls, timing.etcd_deadline_s),
                config.etcd_prefix,
                timing,
                peers,
                epochs,
                news,
                remembered,
                shared,
            )
        else:
            self.cluster = Heartbeats(
                Membership(
                    address,
                    list(heads.places()),
                    heads.own_rank,
                    timing,
                    time.monotonic(),
                    random.Random(),
                    config.max_masters,
                    remembered,
                    failures.suspects.processes,
                ),
                timing,
                MemberCalls(peers, epochs, timing.call_deadline_s, heads),
                LifeSigns(engine),
                news,
                heads,
            )
        cluster = self.cluster
        self.goodbye = goodbye = Goodbye(
            engine, placement, cluster, own_records, news, config.clustered
        )
        departures = Departures(history, cluster, config.member_ttl_s)
        self.history_keeper = history_keeper = HistoryKeeper(
            history, departures, HistoryStore(config.state_dir, config.node_id)
        )
        membership_status = MembershipStatus(engine, placement, cluster, config.discovery_addr)

        # Removals.
        self.removals = removals = Removals(
            engine, placement, debts, removal_store, own_records, cluster, epochs, remembered, news
        )
        self.removal_driver = removal_driver = RemovalDriver(
            removals, placement, peers, failures, timeout_s, goodbye, cold_store
        )
        self.removal_catch_up = removal_catch_up = RemovalCatchUp(
            engine, placement, peers, removals, timeout_s, timing.recovery_wait_s, cluster
        )

        def why_no_store() -> str:
            if removals.owes:
                return "it may have missed removals"
            return goodbye.why_outside

        self.store_markers = store_markers = StoreMarkers(
            placement, failures, goodbye, cold_store, timeout_s
        )
        self.cold = cold = ColdTier(engine, config, cold_store, why_no_store, epochs.all)

        # Pages that move, or stay.
        self.adopts = adopts = Adopts(engine, placement, epochs, timeout_s)
        self.handover = handover = Handover(
            engine,
            placement,
            Offers(records, failures, timeout_s),
            own_records,
            goodbye,
            debts,
            settings,
            timeout_s,
            cold,
        )
        self.intake = intake = Intake(engine, cluster, removal_catch_up, handover.drain)
        prefetch = Prefetch(engine, promotes)
        self.pins = pins = Pins(
            engine,
            placement,
            records,
            promotes,
            prefetch,
            failures,
            settings,
            timeout_s,
            cold,
        )
        budget = Budget()
        here = Here(engine, placement, pins, prefetch, settings, budget)
        self.hints = hints = Hints(engine, placement, pins, here, budget, failures, settings)

        # What workers, operators, peers and dashboards ask of this node.
        self.cluster_wide = cluster_wide = ClusterWide(
            engine,
            placement,
            records,
            failures,
            goodbye,
            epochs,
            removal_driver,
            timeout_s,
            cold_store,
        )
        self.events = Events(
            engine,
            placement,
            cluster_wide,
            failures,
            connects,
            own_records,
            promotes,
            removal_driver,
            pins,
            hints,
            cold,
        )
        self.operations = operations = Operations(
            engine,
            placement,
            records,
            cluster_wide,
            removal_driver,
            handover,
            pins,
            hints,
            status,
            history,
            curves,
            settings,
        )
        self.relay = relay = Relay(operations, placement, peers, secret, tls)
        self.overview = overview = Overview(
            placement, peers, status, membership_status, departures, config.max_masters
        )
        self.node = node = LocalNode(
            placement,
            cluster,
            epochs,
            accepts,
            adopts,
            overview,
            promotes,
            pins,
            here,
            names,
            cold_store,
        )
        self.limits = limits = ConnectionLimits(tls)
        self.refusals = refusals = Refusals()
        self.handshakes = handshakes = Handshakes(
            placement, sessions, debts, limits, refusals, config.data_sealed, shared
        )
        self.interceptor = interceptor = AuthInterceptor(handshakes, sessions, refusals, limits)
        self.servicer = servicer = PeerServicer(
            node, removals, removal_catch_up, sessions, failures, relay, interceptor, limits
        )
        self.server = server = PeerServer(servicer, interceptor, limits, secret, tls, news)
        latencies = Latencies(engine, placement)
        pages, posts = routes(operations, latencies, phase, intake), {}
        if config.metrics_dashboard:
            shows_names = config.metrics_namespace_names
            pages |= api_routes(operations, latencies, overview, relay, shows_names)
            pages |= dashboard_routes()
            posts = prefix_routes(Prefixes(engine, placement, records))
        tokens = Tokens()
        posts |= hint_routes(hints, secret, tokens) if config.router_port else closed_routes()
        self.routers = routers = RouterServer(
            RouterServicer(hints, kv_events), secret, tls, tokens, news, config.clustered
        )
        self.web = web = WebServer(
            config.metrics_host, config.metrics_port, pages, posts, {name or config.host}
        )

        # What looks at all parts from time to time, or acts on their events.
        finding_events = FindingEvents(history, status)
        self.tickers = (
            Periodic(TICK_S, [intake, handover]),
            Periodic(
                SLOW_TICK_S,
                [
                    promotes,
                    store_markers,
                    cold,
                    removal_driver,
                    removal_catch_up,
                    Notices(engine),
                    finding_events,
                    history_keeper,
                    curves,
                    tracing,
                ],
            ),
        )
        status.add(
            *handover.components,
            pins,
            hints,
            adopts,
            routers,
            membership_status,
            departures,
            failures,
            SecurityStatus(
                config,
                engine,
                placement,
                secret,
                tls,
                sessions,
                limits,
                refusals,
                handshakes,
                interceptor,
                peers,
            ),
            DirectoryStatus(engine, placement),
            PoolStatus(),
            RecoveryStatus(epoch_store),
            removal_driver,
            kv_events,
            TransportStatus(engine, placement, connects, accepts, config.protocol),
            DataPlaneStatus(engine, config.faults),
            DiskStatus(config.disk_path, promotes),
            cold,
            tracing,
            settings,
            Identity(config, placement, web, phase),
            web,
        )
        self.reactions = Reactions(
            engine,
            news,
            phase,
            placement,
            tls,
            peers,
            sessions,
            failures,
            links,
            cluster,
            departures,
            removal_catch_up,
            server,
            routers,
            finding_events,
            # The order matters only where parts say so.
            [
                failures,
                connects,
                accepts,
                sessions,
                removals,
                removal_catch_up,
                removal_driver,
                store_markers,
                links,
                keeper,
                departures,
            ],
        )
