"""The composition root: builds the node out of its parts, starts and stops it in order."""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import socket
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from peercached.admin.server import AdminServer
from peercached.admin.status import Status
from peercached.config import Config
from peercached.config.quotas import split_quota
from peercached.config.values import group_number, split_address, user_number
from peercached.directory import ring_report
from peercached.directory.epoch_store import EpochStore, pack_epochs
from peercached.directory.epochs import Epochs
from peercached.directory.local import LocalShard
from peercached.directory.native import Native
from peercached.directory.owner import OwnerSide
from peercached.directory.placement import Node, Placement, RingBuilder
from peercached.directory.publisher import Publisher
from peercached.directory.ring import Ring
from peercached.events import Events
from peercached.membership import Membership, NodeAddress, Timing, View
from peercached.membership.store import Store
from peercached.node_latencies import latencies
from peercached.node_status import NodeStatus
from peercached.observe.port_holder import port_holder
from peercached.operations import Operations
from peercached.overview.overview import Overview
from peercached.overview.summary import summary_of
from peercached.peer.accepts import Accepts
from peercached.peer.adopts import Adopts
from peercached.peer.auth import AuthError, Secret, Sessions
from peercached.peer.client import PeerLink, Peers, Unreachable
from peercached.peer.cluster import Cluster
from peercached.peer.cluster_wide import ClusterWide
from peercached.peer.connects import Connects
from peercached.peer.drain import Drain, Limits
from peercached.peer.epoch_catch_up import catch_up
from peercached.peer.etcd_client import EtcdClient
from peercached.peer.etcd_membership import EtcdMembership
from peercached.peer.heartbeats import Heartbeats
from peercached.peer.lookups import Lookups
from peercached.peer.promotes import Promotes
from peercached.peer.relay import Relay
from peercached.peer.server import PeerServer, PeerServicer
from peercached.peer.service import LocalNode
from peercached.peer.streams import Streams
from peercached.peer.tls import Tls
from peercached.peer.trouble import Trouble
from peercached.peer.view_keeper import ViewKeeper
from peercached.service.settings import Settings
from peercached.service.signals import Stop
from peercached.transport_health import describe
from peercached.warm_restart import recovery_of, told
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
SERVER_GRACE_S = 0.2
# What stop() may take, with room for a busy machine.
STOP_S = 20.0
GREETINGS_AT_ONCE_MAX = 64


class StartRefused(RuntimeError):
    """The cluster does not take this node; the text says why and what to do."""


def new_incarnation() -> int:
    """Grows from start to start by the wall clock; the random bits keep two starts apart
    that read the same time. Never 0, and within 63 bits."""
    return (time.time_ns() >> 10 << 10 | secrets.randbits(10)) & (2**63 - 1) or 1


def make_engine(config: Config, incarnation: int, cluster_key: bytes) -> Engine:
    from peercached._native import Engine

    epochs, why_epochs_unknown = EpochStore(config.state_dir, config.node_id).load()
    return Engine(
        node_id=config.node_id,
        incarnation=incarnation,
        socket_path=config.socket_path,
        socket_mode=int(config.socket_mode, 8),
        cluster_key=cluster_key,
        pool_bytes=config.pool_size,
        huge_pages=config.huge_pages,
        pool_file=config.pool_file,
        epochs=pack_epochs(epochs),
        why_epochs_unknown=why_epochs_unknown,
        shard_entries=config.directory_capacity,
        location_cache_entries=config.location_cache_entries,
        verify=config.verify,
        data_host=config.host,
        data_port=config.data_port,
        channels_per_peer=config.max_channels_per_peer,
        copy_threads=config.copy_threads,
        workers_max=config.workers_max,
        faults=config.faults,
        protocol=config.protocol,
        device_names=config.device_names,
        rdma_gid_index=config.rdma_gid_index,
        rdma_mtu=config.rdma_mtu,
        rdma_traffic_class=config.rdma_traffic_class,
        rdma_hop_limit=config.rdma_hop_limit,
        rdma_pkey=config.rdma_pkey,
        rdma_timeout=config.rdma_timeout,
        rdma_retry_count=config.rdma_retry_count,
        rdma_rd_atomic=config.rdma_rd_atomic,
        disk_path=config.disk_path if config.disk_enabled else "",
        disk_bytes=config.disk_size,
        disk_sync=config.disk_sync,
    )


def start_engine(engine: Engine, config: Config, *, workers: bool = True) -> None:
    """Binds the data port, if that was not done, and the workers' socket. RuntimeError with the
    remedy."""
    if workers:
        _guard(engine, config)
    try:
        if workers:
            engine.start()
        else:
            engine.listen()
    except RuntimeError as error:
        holder = port_holder(config.host, config.data_port) if config.data_port else ""
        raise RuntimeError(f"{error}. {holder} has the port" if holder else str(error)) from error


def _guard(engine: Engine, config: Config) -> None:
    engine.guard_workers(
        group_number(config.socket_group) if config.socket_group else -1,
        [user_number(name) for name in config.worker_users],
        [group_number(name) for name in config.worker_groups],
    )
    quotas = [split_quota(rule) for rule in config.namespace_quotas]
    engine.set_quotas([quota.in_bytes(config.pool_size, config.disk_size) for quota in quotas])


async def own_rank(config: Config) -> int | None:
    """This node's place among the heads: the first whose name is ours and port is our own."""
    loop = asyncio.get_running_loop()
    own = await _addresses(loop, config.host, config.meta_port)
    for rank, head in enumerate(config.discovery_addr):
        host, port = split_address(head)
        if port != config.meta_port:
            continue
        if host == config.host or own & await _addresses(loop, host, port):
            return rank
    return None


async def _addresses(loop: asyncio.AbstractEventLoop, host: str, port: int) -> set[str]:
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return set()  # a head whose name nobody knows now may be known later: no reason to stop
    return {str(entry[4][0]) for entry in found}


class Daemon:
    """One node. start() and stop() once each; everything on one event loop."""

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
        )
        self.secret = secret
        self.tls = tls
        self.peers = Peers(lambda: self.placement.own.address, secret, tls, timeout_s)
        self.peers.on_session = self._on_session
        self.placement = Placement(engine, address, ring, native, config.directory_replicas)
        self.epochs = Epochs(engine, EpochStore(config.state_dir, config.node_id))
        self.keeper = ViewKeeper(Store(config.state_dir, config.node_id))
        self.cluster = self._make_cluster(address, rank, remembered, tls)
        self.owner_side = OwnerSide(engine)
        self.local = LocalShard(engine)
        self.local.on_refused = self.owner_side.own_records_refused
        self.trouble = Trouble(engine, self.placement, self.peers)
        self.streams = Streams(
            engine,
            native,
            self.placement,
            self.owner_side,
            self.local,
            self.peers,
            self.trouble,
        )
        self.publisher = Publisher(
            engine, self.local, self.streams, config.publish_timeout_ms / 1000
        )
        self.streams.publisher = self.publisher
        self.lookups = Lookups(
            engine, native, self.placement, self.owner_side, self.peers, self.trouble, timeout_s
        )
        self.connects = Connects(engine, self.placement, self.peers, self.trouble, timeout_s)
        self.accepts = Accepts(engine, self.placement)
        self.trouble.on_suspect = self._on_suspect
        self.cluster_wide = ClusterWide(
            engine,
            self.placement,
            self.peers,
            self.lookups,
            self.trouble,
            self.epochs,
            timeout_s,
        )
        self.node_status = NodeStatus(self)
        self.overview = Overview(
            self.placement,
            self.peers,
            lambda: summary_of(Status.model_validate(dict(self.status()))),
            self.node_status.members,
            config.max_masters,
        )
        self.promotes = Promotes(
            engine, native, self.placement, self.peers, self.trouble, timeout_s
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
        )
        self.servicer = PeerServicer(self.node, self.sessions, tls)
        self.server = PeerServer(self.servicer, tls)
        self.drain = Drain(
            engine,
            self.placement,
            self.peers,
            self.lookups,
            self.trouble,
            self._announce_drain,
            self.node.withdraw_here,
            self.node.drop_here,
            self._leave_for_good,
            timeout_s,
        )
        self.events = Events(
            engine,
            self.placement,
            self.publisher,
            self.streams,
            self.lookups,
            self.cluster_wide,
            self.trouble,
            self.connects,
            self.promotes,
        )
        self.started_at = time.monotonic()
        self._starting = True
        self._greetings: set[asyncio.Task[None]] = set()
        self._greeting = asyncio.Semaphore(GREETINGS_AT_ONCE_MAX)
        self._ticker: asyncio.Task[None] | None = None
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
                self._on_view,
                self._on_refused,
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
        )
        return Heartbeats(
            membership, timing, self.peers, self.epochs, self._on_view, self._on_refused
        )

    def _web_routes(self) -> dict[str, Handler]:
        timed = partial(latencies, self)
        found = routes(self.status, timed)
        if self.config.metrics_dashboard:
            found |= api_routes(self.status, timed, self.overview.document, self.locate)
            found |= dashboard_routes()
        return found

    # --- life

    async def start(self) -> None:
        """OSError or RuntimeError with the remedy when the node cannot start."""
        self._on_view(self.cluster.view)
        self.streams.start()
        self._ticker = asyncio.ensure_future(self._tick())
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
        self._starting = False
        self.epochs.keeper.raised()  # recovered pages may have told of some
        start_engine(self.engine, self.config)

    async def _learn_what_was_cleared(self) -> None:
        """No worker may get a page of an earlier start that was cleared while we were away."""
        others = [n for n in self.placement.nodes.values() if n is not self.placement.own]
        masters = {str(master["node_id"]) for master in self.cluster.document()["masters"]}
        timeout_s = self.config.rpc_timeout_ms / 1000
        await catch_up(self.epochs, self.peers, others, masters, timeout_s)

    async def stop(self) -> None:
        """Leaves, flushes the streams, ends what runs; each within a bound."""
        if self.config.clustered and not self._starting:
            await self.drain.stop()
            await self._flush()
            await self._leave()
        await self.cluster.stop()
        self.overview.stop()
        self.events.stop()
        # Off the loop: worker threads that end may still be answered by it.
        await asyncio.get_running_loop().run_in_executor(None, self.engine.stop)
        await self.server.stop(SERVER_GRACE_S)
        self.accepts.stop()
        for task in (self._ticker, *self._greetings):
            if task is not None:
                task.cancel()
        await self.lookups.stop()
        await self.promotes.stop()
        await self.trouble.stop()
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
        """Out of the cluster, and alone until the end of this process."""
        await self._flush()
        await self._leave()
        await self.cluster.stop()
        self._on_view(View.alone(self.placement.own.address))

    async def _leave(self) -> None:
        try:
            await self.cluster.leave(LEAVE_S)
        except Exception as error:
            log.info("leaving was not heard by all heads: %r", error)

    async def _flush(self) -> None:
        deadline = time.monotonic() + FLUSH_S
        while not (self.streams.idle() and self.publisher.idle):
            if time.monotonic() >= deadline:
                log.info("stops with records on their way; the owners drop them with this node")
                return
            await asyncio.sleep(0.01)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            now = time.monotonic()
            for owner in self.publisher.expire(now):
                if owner in self.placement.nodes:
                    self.trouble.suspect(
                        self.placement.nodes[owner], "it did not take records in time"
                    )
            self.streams.check(now)
            for sentence in self.engine.take_notices():
                log.warning("%s", sentence)
            if self.placement.trim_due(now):
                await asyncio.get_running_loop().run_in_executor(None, self.engine.shard_trim)

    def _handle_events(self) -> None:
        self.events.drain()

    # --- views

    def _on_view(self, view: View) -> None:
        self.owner_side.view_changes()
        change = self.placement.apply(view, time.monotonic())
        for node in change.removed:
            self.trouble.forget(node)
            self.connects.forget(node)
            self.sessions.drop(node.address)
        number = self.placement.view.number
        answers = self.owner_side.set_view(number, self.placement.nodes)
        self.streams.set_view(number, change.added, change.removed)
        self.node.send_late(answers)
        endpoints = {member.address.endpoint for member in view.members}
        for link in self.peers.keep_only(endpoints | self.cluster.endpoints()):
            self._spawn(link.close())
        for node in change.added:
            self._spawn(self._greet(node))
        names = ", ".join(member.node_id for member in view.members)
        log.info("view %d of %d: %s", view.counter, len(view.members), names)
        self.keeper.keep(view)

    def _on_refused(self, reason: str) -> None:
        if not self._starting:
            log.error("out of the cluster: %s", reason)

    def _spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._greetings.add(task)
        task.add_done_callback(self._greetings.discard)

    async def _greet(self, node: Node) -> None:
        """Shakes hands with a new member at once, so that the first READ need not wait."""
        link = self.peers.link(node.address.endpoint)
        async with self._greeting:
            try:
                await link.ready(node.address)
            except (Unreachable, AuthError) as error:
                self.trouble.suspect(node, str(error))
                return
        if not node.data_ready:
            self._on_session(link)

    def _on_suspect(self, node: Node) -> None:
        self.publisher.stop_waiting_for(node.index)
        self.lookups.stop_waiting_for(node)

    def _on_session(self, link: PeerLink) -> None:
        who = link.identity
        node = self.placement.find(who.node_id, who.incarnation) if who is not None else None
        if who is None or node is None or node is self.placement.own:
            return
        self.engine.connect_node(
            node.index, who.host, who.data_port, link.read_token, who.incarnation, who.rails
        )
        node.data_ready = True

    def take(self, settings: Settings) -> None:
        """The keys that may change while it runs."""
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


async def run(
    settings: Settings,
    stop: Stop,
    ready: Callable[[Callable[[], str]], None],
    stopping: Callable[[float], None],
) -> None:
    """Runs the node until `stop` is asked for. `ready` is told how to describe it in a line,
    `stopping` how long the end may take. What is wrong at start is an OSError, RuntimeError or
    ValueError that says what to do."""
    from peercached import _native

    config = settings.config
    secret = Secret.load(config.cluster_secret_file)
    tls = Tls.load(config.tls_ca, config.tls_cert, config.tls_key, config.node_id, config.host)
    incarnation = new_incarnation()
    rank = await own_rank(config)
    remembered = Store(config.state_dir, config.node_id).load()
    loop = asyncio.get_running_loop()
    # Maps and touches the whole pool, which takes seconds: signals must work meanwhile.
    engine = await loop.run_in_executor(
        None, make_engine, config, incarnation, secret.cluster_key()
    )
    for line in (*describe(engine.transport()), *told(recovery_of(engine.stats()))):
        log.info("%s", line)
    if config.data_port == 0:
        # The peers must be told which port it becomes.
        start_engine(engine, config, workers=False)
    ring = Ring()
    daemon = Daemon(
        config,
        engine,
        _native,
        secret,
        tls,
        incarnation,
        rank,
        lambda members, pool_bytes: ring.build(members, config.vnodes, pool_bytes),
        remembered,
    )
    daemon.take(settings)
    operations = Operations(daemon, settings)
    relay = Relay(operations, daemon.placement, daemon.peers, secret.present or tls is not None)
    daemon.servicer.operate = relay.answer
    admin = AdminServer(config.admin_socket, operations, relay)
    try:
        await daemon.start()
        await admin.start()
        if config.metrics_enabled:
            await daemon.web.start()
        ready(daemon.node_status.line)
        await stop.asked.wait()
        # With a pool_file the pages wait for the next start where they are.
        hand_over = stop.hand_over and not config.pool_file
        seconds = settings.config.stop_drain_s if hand_over else 0.0
        stopping(seconds + STOP_S)
        await daemon.drain.before_stop(seconds)
    finally:
        await daemon.web.stop()
        await admin.stop()
        await daemon.stop()
