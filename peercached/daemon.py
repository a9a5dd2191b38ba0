"""The parts of a node. Each one uses only parts that are listed before it.

What a part has to tell those after it goes as an event through `news` to `reactions`, the last
part.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

from peercached.config.shared import shared_settings
from peercached.data_plane.disk import DiskStatus
from peercached.data_plane.latencies import Latencies
from peercached.data_plane.notices import Notices
from peercached.data_plane.recovery import RecoveryStatus
from peercached.data_plane.status import DataPlaneStatus
from peercached.directory.epoch_store import EpochStore
from peercached.directory.first_clears import FirstClears
from peercached.directory.placement import Placement, RingBuilder
from peercached.events import Events
from peercached.history.curves import Curves
from peercached.history.departures import Departures
from peercached.history.event_log import EventLog
from peercached.history.findings import FindingEvents
from peercached.history.keeper import HistoryKeeper
from peercached.history.store import HistoryStore
from peercached.identity import Identity
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
from peercached.peer.directory.prefixes import Prefixes
from peercached.peer.directory.promotes import Promotes
from peercached.peer.directory.records import Records
from peercached.peer.directory.status import DirectoryStatus
from peercached.peer.directory.told_epochs import ToldEpochs
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
from peercached.peer.rpc.auth import Secret, Sessions
from peercached.peer.rpc.client import OwnSide, Peers
from peercached.peer.rpc.connection_limits import ConnectionLimits
from peercached.peer.rpc.failure_detector import FailureDetector
from peercached.peer.rpc.heads import Heads
from peercached.peer.rpc.tls import Tls
from peercached.peer.service.auth_interceptor import AuthInterceptor
from peercached.peer.service.cluster_wide import ClusterWide
from peercached.peer.service.handshakes import Handshakes
from peercached.peer.service.local_node import LocalNode
from peercached.peer.service.refusals import Refusals
from peercached.peer.service.relay import Relay
from peercached.peer.service.security import SecurityStatus
from peercached.peer.service.server import PeerServer
from peercached.peer.service.servicer import PeerServicer
from peercached.periodic import Periodic
from peercached.phase import Phase
from peercached.reactions import Reactions
from peercached.removals.debts import Debts
from peercached.removals.store import RemovalStore
from peercached.service.settings import Settings
from peercached.tracing.tracing import Tracing
from peercached.web.api import api_routes
from peercached.web.dashboard import dashboard_routes
from peercached.web.prefix import prefix_routes
from peercached.web.routes import routes
from peercached.web.server import WebServer

if TYPE_CHECKING:
    from peercached._native import Engine

# Of what sets and lookups wait for, and of the rest. Each tick costs an idle daemon processor time.
TICK_S = 0.1
SLOW_TICK_S = 0.5


class Daemon:
    """One node. life.py starts and stops it."""

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
        self.timing = Timing(config.heartbeat_interval_s, config.member_ttl_s)
        self.phase = Phase()
        shared = shared_settings(config)
        news = settings.news
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

        # What this node knows and tells of itself.
        self.status = NodeStatus(engine)
        self.history = EventLog(config.node_id)
        self.curves = Curves(config.node_id, engine)
        self.placement = placement = Placement(engine, address, ring, config.directory_replicas)
        self.tracing = Tracing(engine, placement, config.otlp_endpoint)
        removal_store = RemovalStore(config.state_dir, config.node_id, secret.cluster_key())
        debts = Debts(address, removal_store, engine.state_is_old, engine.removals_last)

        # The ways to other nodes.
        self.peers = peers = Peers(
            OwnSide(placement, secret, tls, timeout_s, shared, heads, debts, news)
        )
        self.sessions = Sessions(secret, engine, placement)
        self.failures = failures = FailureDetector(engine, placement, peers, news, timeout_s)
        self.connects = Connects(engine, placement, peers, failures, timeout_s)
        self.accepts = Accepts(engine, placement)
        self.links = DataLinks(engine, placement, peers, failures)

        # Records and epochs.
        self.records = Records(engine)
        self.own_records = OwnRecords(engine, placement, timeout_s)
        self.promotes = Promotes(engine, placement, peers, failures, timeout_s)
        self.epochs = ToldEpochs(
            engine,
            EpochStore(config.state_dir, config.node_id),
            FirstClears(time.monotonic),
            placement,
            debts,
            self.sessions,
        )

        # Membership.
        self.keeper = ViewKeeper(Store(config.state_dir, config.node_id))
        self.cluster: Cluster
        if config.membership == "etcd":
            etcd_tls = tls if tls is not None and tls.calls else None
            self.cluster = EtcdMembership(
                address,
                EtcdClient(config.etcd_endpoints, etcd_tls, self.timing.etcd_deadline_s),
                config.etcd_prefix,
                self.timing,
                peers,
                self.epochs,
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
                    self.timing,
                    time.monotonic(),
                    random.Random(),
                    config.max_masters,
                    remembered,
                    failures.suspects.processes,
                ),
                self.timing,
                MemberCalls(peers, self.epochs, self.timing.call_deadline_s, heads),
                LifeSigns(engine),
                news,
                heads,
            )
        self.goodbye = Goodbye(
            engine, placement, self.cluster, self.own_records, news, config.clustered
        )
        departures = Departures(self.history, self.cluster, config.member_ttl_s)
        self.history_keeper = HistoryKeeper(
            self.history, departures, HistoryStore(config.state_dir, config.node_id)
        )
        membership_status = MembershipStatus(engine, placement, self.cluster, config.discovery_addr)

        # Removals.
        self.removals = Removals(
            engine,
            placement,
            debts,
            removal_store,
            self.own_records,
            self.cluster,
            self.epochs,
            remembered,
            news,
        )
        self.removal_driver = RemovalDriver(
            self.removals, placement, peers, failures, timeout_s, self.goodbye
        )
        self.removal_catch_up = RemovalCatchUp(
            engine,
            placement,
            peers,
            self.removals,
            timeout_s,
            self.timing.recovery_wait_s,
            self.cluster,
        )

        # Pages that move, or stay.
        self.adopts = Adopts(engine, placement, self.epochs, timeout_s)
        self.handover = Handover(
            engine,
            placement,
            Offers(peers, self.records, failures, timeout_s),
            self.own_records,
            self.goodbye,
            debts,
            settings,
            timeout_s,
        )
        self.intake = Intake(engine, self.cluster, self.removal_catch_up, self.handover.drain)
        self.pins = Pins(
            engine,
            placement,
            self.records,
            self.promotes,
            Prefetch(engine, self.promotes),
            peers,
            failures,
            settings,
            timeout_s,
        )

        # What workers, operators, peers and dashboards ask of this node.
        self.cluster_wide = ClusterWide(
            engine,
            placement,
            peers,
            self.records,
            failures,
            self.epochs,
            self.removal_driver,
            timeout_s,
        )
        self.events = Events(
            engine,
            placement,
            self.cluster_wide,
            failures,
            self.connects,
            self.own_records,
            self.promotes,
            self.removal_driver,
            self.pins,
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
            settings,
        )
        self.relay = Relay(self.operations, placement, peers, secret, tls)
        self.overview = Overview(
            placement, peers, self.status, membership_status, departures, config.max_masters
        )
        self.node = LocalNode(
            placement,
            self.cluster,
            self.epochs,
            self.accepts,
            self.adopts,
            self.overview,
            self.promotes,
            self.pins,
        )
        self.limits = ConnectionLimits(tls)
        self.refusals = Refusals()
        self.handshakes = Handshakes(
            placement,
            self.sessions,
            debts,
            self.limits,
            self.refusals,
            config.data_sealed,
            shared,
        )
        self.interceptor = AuthInterceptor(
            self.handshakes, self.sessions, self.refusals, self.limits
        )
        self.servicer = PeerServicer(
            self.node,
            self.removals,
            self.removal_catch_up,
            self.sessions,
            failures,
            self.relay,
            self.interceptor,
            self.limits,
        )
        self.server = PeerServer(self.servicer, self.interceptor, self.limits, secret, tls, news)
        latencies = Latencies(engine, placement)
        pages, posts = routes(self.operations, latencies), {}
        if config.metrics_dashboard:
            shows_names = config.metrics_namespace_names
            pages |= api_routes(self.operations, latencies, self.overview, self.relay, shows_names)
            pages |= dashboard_routes()
            posts = prefix_routes(Prefixes(engine, placement, self.records))
        self.web = WebServer(config.metrics_host, config.metrics_port, pages, posts, {config.host})

        # Whoever looks at all parts from time to time, or acts on what they tell.
        finding_events = FindingEvents(self.history, self.status)
        self.tickers = (
            Periodic(TICK_S, [self.intake, self.handover]),
            Periodic(
                SLOW_TICK_S,
                [
                    self.promotes,
                    self.removal_driver,
                    self.removal_catch_up,
                    Notices(engine),
                    finding_events,
                    self.history_keeper,
                    self.curves,
                    self.tracing,
                ],
            ),
        )
        self.status.add(
            *self.handover.components,
            self.pins,
            self.adopts,
            membership_status,
            departures,
            failures,
            SecurityStatus(
                config,
                engine,
                placement,
                secret,
                tls,
                self.sessions,
                self.limits,
                self.refusals,
                self.handshakes,
                self.interceptor,
                peers,
            ),
            DirectoryStatus(engine, placement),
            RecoveryStatus(self.epochs.keeper),
            self.removal_driver,
            TransportStatus(engine, placement, self.connects, self.accepts, config.protocol),
            DataPlaneStatus(engine, config.faults),
            DiskStatus(config.disk_path, self.promotes),
            self.tracing,
            settings,
            Identity(config, placement, self.web, self.phase),
            self.web,
        )
        self.reactions = Reactions(
            engine,
            news,
            self.phase,
            placement,
            tls,
            peers,
            self.sessions,
            failures,
            self.links,
            self.cluster,
            departures,
            self.removal_catch_up,
            self.server,
            finding_events,
            # All are told in one step of the event loop, so the order matters only where parts say
            # so.
            followers=[
                failures,
                self.connects,
                self.accepts,
                self.sessions,
                self.removals,
                self.removal_catch_up,
                self.removal_driver,
                self.links,
                self.keeper,
                departures,
            ],
        )
