"""Starts and stops a node: its parts begin and end in a fixed order."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from peercached import __version__
from peercached.daemon import Daemon
from peercached.peer.directory.epoch_catch_up import catch_up
from peercached.service.stopping import end_all

# How long a start waits for the others' records, so that a hanging member cannot block it.
START_SYNC_S = 0.5
START_LOOK_S = 0.01


class StartRefused(RuntimeError):
    """The cluster refuses this node; the text says why and what to do."""


async def start(node: Daemon) -> None:
    """Call it once. OSError or RuntimeError with the remedy if the node cannot start."""
    node.reactions.apply(node.cluster.view)
    for ticker in node.tickers:
        ticker.start()
    node.tracing.start()
    node.events.start()
    node.hints.start()
    if node.config.clustered:
        await node.server.start(node.config.host, node.config.meta_port)
        node.cluster.start()
        timing = node.timing
        await node.cluster.settle(
            timing.call_deadline_s + timing.replace_after_s + 2 * timing.heartbeat_interval_s
        )
        if node.cluster.refused:
            raise StartRefused(node.cluster.refused)
        await _learn_what_was_cleared(node)
        await node.removal_catch_up.run()
    else:
        node.removals.owes_nobody()
    await node.store_markers.ask()
    # Only now may others find pages of an earlier start: missed clears and removals are known.
    node.engine.begin_serving()
    await _hear_of_all_pages(node)
    node.removal_driver.start()
    node.epochs.persist()  # recovered pages may carry newer epochs: store them
    node.intake.tend(time.monotonic())
    node.kv_events.start()
    node.engine.start()
    if node.config.router_port:
        await node.routers.start(node.config.metrics_host, node.config.router_port)
    node.phase.starting = False
    node.history.add("started", f"version {__version__}, in view {node.placement.view.counter}")


async def _learn_what_was_cleared(node: Daemon) -> None:
    """Catches up on clears, or workers would get pages that were cleared while we were away."""
    masters = {str(master["node_id"]) for master in node.cluster.document()["masters"]}
    await catch_up(node.epochs, node.peers, node.placement.others, masters, node.timeout_s)


async def _hear_of_all_pages(node: Daemon) -> None:
    """Waits until we have all members' records, and they ours or the beginning of them. Else
    workers would miss pages that are there, or others those that are set here."""
    deadline = time.monotonic() + START_SYNC_S
    engine = node.engine
    while not engine.all_have_asked or (
        engine.follows and len(engine.followed()) < len(node.placement.others)
    ):
        if time.monotonic() >= deadline:
            return
        await asyncio.sleep(START_LOOK_S)


async def stop(node: Daemon) -> None:
    """Leaves the cluster and stops all parts, each within a timeout. Callers end before the parts
    that they ask. So ticks end first, because they begin work of all parts. Call it once."""
    stops: list[Callable[[], Awaitable[object] | None]] = [
        *(ticker.stop for ticker in node.tickers),
        node.handover.stop,
    ]
    if node.config.clustered and not node.phase.starting:
        stops.append(node.own_records.told)
    if node.config.clustered and (not node.phase.starting or node.placement.others):
        # Serve nothing once we have left: removals reach members only.
        stops += [node.engine.end_serving, node.goodbye.leave]

    async def stop_engine() -> None:
        # Off the loop: the stop joins threads that may still need an answer from it.
        await asyncio.get_running_loop().run_in_executor(None, node.engine.stop)

    stops += [
        node.cluster.stop,
        node.overview.stop,
        node.routers.stop,
        node.events.stop,
        node.hints.stop,
        node.kv_events.stop,
        node.cold.end_writes,
        stop_engine,
        node.server.stop,
        node.accepts.stop,
        node.links.stop,
        node.tracing.stop,
        node.removal_catch_up.stop,
        node.removal_driver.stop,
        node.store_markers.stop,
        node.cold.stop,
        node.removals.stop,
        node.records.stop,
        node.promotes.stop,
        node.failures.stop,
        node.keeper.stop,
        node.history_keeper.stop,
        node.epochs.stop,
        node.peers.close,
        node.connects.end,
    ]
    await end_all(stops)
