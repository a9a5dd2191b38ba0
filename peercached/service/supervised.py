"""This process, as the service manager and an operator's signals see it."""

from __future__ import annotations

import logging
import os

from peercached.service.heart import Heart, Lined
from peercached.service.notify import Notifier
from peercached.service.settings import Settings
from peercached.service.stopping import RESERVE_S, exit_after

log = logging.getLogger("peercached")


class Supervised:
    """On the event loop's thread."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._notifier = Notifier.from_environment(os.environ)
        self.heart = Heart(self._notifier)
        self.started = False

    def ready(self, status: Lined) -> None:
        """The node serves. `status` describes it from now on."""
        self.started = True
        self.heart.status = status
        config = self._settings.config
        log.info(
            "ready: node %s, %s, %s",
            config.node_id,
            f"workers at {config.worker_socket}" if config.worker_socket else "memory only",
            f"peers at {config.host}:{config.meta_port}" if config.clustered else "no peers",
        )
        self._notifier.ready(status.line())
        self.heart.beat()

    def stopping(self, at_most_s: float) -> None:
        """The stop takes so many seconds at most."""
        self._notifier.stopping(at_most_s)
        exit_after(at_most_s - RESERVE_S)

    async def reload(self) -> None:
        # systemd waits for READY=1 after RELOADING=1, even if the configuration is wrong.
        self._notifier.reloading()
        try:
            await self._settings.reload()
        finally:
            self._notifier.ready(self.heart.status.line())
