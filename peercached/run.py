"""Runs the daemon once, from the configuration to the clean stop."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from peercached import start_stop
from peercached.admin.server import AdminServer
from peercached.config import Config
from peercached.daemon import Daemon
from peercached.data_plane.make import listen, make_engine
from peercached.data_plane.recovery import recovery_of, sentences
from peercached.data_plane.transport import describe
from peercached.directory.ring import Ring
from peercached.membership.store import Store
from peercached.names import is_literal
from peercached.observe.lost_callers import expect_lost_callers
from peercached.peer.membership.this_node import new_incarnation
from peercached.peer.rpc.auth import Secret
from peercached.peer.rpc.heads import Heads
from peercached.peer.rpc.node_key import NodeKey
from peercached.peer.rpc.tls import Tls
from peercached.service.settings import ConfigChanged, Settings
from peercached.service.signals import Stop
from peercached.service.stopping import STOP_S, end_all
from peercached.service.supervised import Supervised

if TYPE_CHECKING:
    from peercached._native import Engine

log = logging.getLogger(__name__)

# How often the log reports a slow start.
SAY_EVERY_S = 10.0


async def _told_of_waiting(made: asyncio.Future[Engine], config: Config) -> Engine:
    """Awaits the engine, and logs the reason for the wait every SAY_EVERY_S seconds."""
    began = time.monotonic()
    while not (await asyncio.wait([made], timeout=SAY_EVERY_S))[0]:
        disk = f" and reading the disk tier at {config.disk_path}" if config.disk_enabled else ""
        log.info(
            "still starting after %.0f s: mapping the pool of %d bytes%s",
            time.monotonic() - began,
            config.pool_size,
            disk,
        )
    return await made


async def run(
    settings: Settings,
    stop: Stop,
    service: Supervised,
) -> None:
    """Runs the node until `stop` is asked for. A failed start raises OSError, RuntimeError or
    ValueError with the remedy."""
    expect_lost_callers(asyncio.get_running_loop())
    loop = asyncio.get_running_loop()
    given = settings.config.host
    # In a thread: the resolver may take seconds.
    await loop.run_in_executor(None, settings.settle_host)
    config = settings.config
    name = "" if given == "auto" or is_literal(given) else given
    heads = Heads(config.discovery_addr, config.host, config.meta_port)
    heads.start()
    key = NodeKey.kept(config.state_dir, config.node_id)
    secret = Secret.load(config.cluster_secret_file, key)
    tls = Tls.load(
        config.tls_ca,
        config.tls_cert,
        config.tls_key,
        config.node_id,
        name or config.host,
        config.tls_mode,
    )
    incarnation = new_incarnation()
    remembered = Store(config.state_dir, config.node_id).load()
    # In a thread: mapping the pool and reading the disk take seconds, and signals must work
    # meanwhile.
    made = loop.run_in_executor(None, make_engine, config, incarnation, secret.cluster_key())
    engine = await _told_of_waiting(made, config)
    for line in (*describe(engine.transport()), *sentences(recovery_of(engine.stats()))):
        log.info("%s", line)
    # Listen before joining: peers ask the data port for records once a view includes this node.
    listen(engine, config)
    daemon = Daemon(
        settings,
        engine,
        secret,
        tls,
        incarnation,
        heads,
        Ring().build,
        remembered,
        name,
    )
    if settings.config is not config:  # reloaded meanwhile
        settings.news.post(ConfigChanged(settings.config))
    admin = AdminServer(config.admin_socket, daemon.operations, daemon.relay)
    try:
        # Before joining: a node that joins and then fails changes the ring twice for nothing.
        admin.make_way()
        if config.metrics_enabled:
            await daemon.web.start()
        if not await stop.unless_asked(start_stop.start(daemon)):
            return
        await admin.start()
        service.ready(daemon.status)
        await stop.asked.wait()
        # With a pool_file the pages survive the restart, so do not hand them over.
        hand_over = stop.hand_over and not config.pool_file
        seconds = settings.config.stop_drain_s if hand_over else 0.0
        service.stopping(seconds + STOP_S)
        daemon.phase.stops_since = time.monotonic()
        await daemon.handover.drain.before_stop(seconds)
    finally:
        heads.stop()
        service.stopping(STOP_S)
        await end_all([daemon.web.stop, admin.stop])
        await start_stop.stop(daemon)
