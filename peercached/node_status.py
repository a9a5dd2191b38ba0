"""The status document (admin/status.py) of a running node, put together from its parts."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from peercached import __version__
from peercached.component import Component, Stats
from peercached.config import Config
from peercached.directory.placement import Placement
from peercached.health import Findings, Say, kinds
from peercached.web.server import WebServer

if TYPE_CHECKING:
    from peercached._native import Engine


class NodeStatus:
    """On the event loop's thread."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._parts: list[Component] = []

    def add(self, *parts: Component) -> None:
        """Adds parts of the node. Their findings are reported in this order."""
        self._parts.extend(parts)

    def findings(self) -> Findings:
        """A health check alone."""
        stats = self._engine.stats()
        findings = Findings()
        for part in self._parts:
            part.say(findings.say, stats)
        return findings

    def document(self) -> dict[str, Any]:
        stats = self._engine.stats()
        findings = Findings()
        sections: dict[str, Any] = {}
        control: dict[str, int] = {}
        for part in self._parts:
            part.say(findings.say, stats)
            sections |= part.sections(stats)
            control |= part.control_counters(stats)
        return {
            **sections,
            "health": findings.document(),
            "operations": {**stats.get("operations", {}), "control": control},
        }

    def line(self) -> str:
        """One line for the service manager."""
        now = self.document()
        members, pool = now["membership"]["members"], now["pool"]
        used = pool.get("used_bytes", 0) / max(pool.get("capacity_bytes", 0), 1)
        health = now["health"]
        worst = next(
            (h for severity in ("error", "warning") for h in health if h["severity"] == severity),
            None,
        )
        others = len(members) - 1
        return (
            f"Serving, with {others} other node{'' if others == 1 else 's'}; pool {used:.0%} used; "
            + (worst["sentence"] if worst else "healthy.")
        )


class Identity(Component):
    """This node's identity, and the addresses that it listens at."""

    def __init__(
        self,
        config: Config,
        placement: Placement,
        web: WebServer,
        starting: Callable[[], bool],
        stops_since: Callable[[], float | None],
    ) -> None:
        self._config = config
        self._placement = placement
        self._web = web
        self._starting = starting
        self._stops_since = stops_since
        self._started_at = time.monotonic()

    def sections(self, stats: Stats) -> dict[str, Any]:
        del stats
        own = self._placement.own.address
        return {
            "node": {
                "id": own.node_id,
                "role": self._config.role,
                "incarnation": own.incarnation,
                "version": __version__,
                "host": own.host,
                "meta_port": own.peer_port,
                "data_port": own.data_port,
                "metrics_host": self._config.metrics_host,
                "metrics_port": self._web.port,
                "socket_path": self._config.worker_socket,
                "pid": os.getpid(),
                "uptime_s": time.monotonic() - self._started_at,
                "starting": self._starting(),
                "stopping": self._stops_since() is not None,
            }
        }

    def say(self, say: Say, stats: Stats) -> None:
        del stats
        since = self._stops_since()
        if since is not None:
            say(
                kinds.STOPPING,
                f"This daemon has been stopping for {time.monotonic() - since:.0f} s.",
                "Wait, or send a second SIGTERM: it then stops at once.",
            )
