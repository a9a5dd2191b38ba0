"""Takes traced gets from the data plane, and tells how their export goes."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from peercached.component import Component, Stats
from peercached.directory.placement import Placement
from peercached.health import Say, kinds
from peercached.health.recent_growth import Lately
from peercached.tracing.call import named

if TYPE_CHECKING:
    from peercached._native import Engine
    from peercached.tracing.exporter import Exporter

log = logging.getLogger(__name__)


class Tracing(Component):
    """`endpoint`: the key otlp_endpoint; empty: gets are not traced. On the event loop's thread."""

    def __init__(self, engine: Engine, placement: Placement, endpoint: str) -> None:
        self._engine = engine
        self._placement = placement
        self._endpoint = endpoint
        self._exporter: Exporter | None = None
        self._why_off = ""
        self._lately = Lately()
        if not endpoint:
            return
        try:
            # A second of imports, and packages that only this key needs.
            from peercached.tracing.exporter import Exporter

            self._exporter = Exporter(endpoint, placement.own.address.node_id)
        except ImportError as error:
            self._why_off = str(error)
            log.warning("otlp_endpoint is set, but no traces are exported: %s", error)

    def start(self) -> None:
        if self._exporter is not None:
            self._exporter.start()
            self._engine.trace_calls(True)

    def tend(self, now: float) -> None:
        del now
        if self._exporter is not None:
            for raw in self._engine.take_traced_calls():
                self._exporter.offer(named(raw, self._placement))

    async def stop(self) -> None:
        if self._exporter is not None:
            self._engine.trace_calls(False)
            self.tend(0.0)
            await asyncio.get_running_loop().run_in_executor(None, self._exporter.stop)

    def sections(self, stats: Stats) -> dict[str, Any]:
        del stats
        exporter = self._exporter
        return {
            "tracing": {
                "endpoint": self._endpoint,
                "exported_spans": exporter.exported if exporter else 0,
                "failed_spans": exporter.failed if exporter else 0,
                "dropped_calls": self._dropped(),
                "error": self._why_off or (exporter.error if exporter else ""),
            }
        }

    def _dropped(self) -> int:
        exporter = self._exporter
        return exporter.dropped + self._engine.traced_calls_dropped if exporter else 0

    def say(self, say: Say, stats: Stats) -> None:
        del stats
        if self._why_off:
            say(
                kinds.TRACING_OFF,
                "The key otlp_endpoint is set, but no traces are exported, because a package is "
                f"missing: {self._why_off}.",
                "Install the packages (pip install 'peercached[otel]') and restart the daemon, or "
                "remove the key.",
            )
        exporter = self._exporter
        if exporter is None:
            return
        dropped = self._lately.grown("dropped", self._dropped())
        if exporter.error:
            say(
                kinds.TRACES_LOST,
                f"The OpenTelemetry collector at {self._endpoint} did not take the last spans: "
                f"{exporter.error}. Lost since the start: {exporter.failed} spans, and "
                f"{self._dropped()} calls before they became spans.",
                "Start the collector, or correct otlp_endpoint. No call waits for the collector.",
            )
        elif dropped:
            say(
                kinds.TRACES_LOST,
                f"{dropped} traced calls of the last hour were not exported: there were too many "
                f"for the OpenTelemetry collector at {self._endpoint}.",
                "Let the engine sample fewer requests.",
            )
