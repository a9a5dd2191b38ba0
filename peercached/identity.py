"""The status document's `node`: its identity, and the addresses that it listens at."""

from __future__ import annotations

import os
import time
from typing import Any

from peercached import __version__
from peercached.component import Component, Stats
from peercached.config import Config
from peercached.directory.placement import Placement
from peercached.health import Say, kinds, lasting
from peercached.phase import Phase
from peercached.web.server import WebServer


class Identity(Component):
    def __init__(
        self,
        config: Config,
        placement: Placement,
        web: WebServer,
        phase: Phase,
    ) -> None:
        self._config = config
        self._placement = placement
        self._web = web
        self._phase = phase
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
                "starting": self._phase.starting,
                "stopping": self._phase.stops_since is not None,
            }
        }

    def say(self, say: Say, stats: Stats) -> None:
        del stats
        since = self._phase.stops_since
        if since is not None:
            say(
                kinds.STOPPING,
                f"This daemon is stopping{lasting(time.monotonic() - since)}.",
                "Wait, or send a second SIGTERM: it then stops at once.",
            )
