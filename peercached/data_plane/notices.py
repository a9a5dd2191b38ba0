"""Passes the data plane's notices on to the log."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from peercached._native import Engine

log = logging.getLogger(__name__)


class Notices:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def tend(self, now: float) -> None:
        del now
        for sentence in self._engine.take_notices():
            log.warning("%s", sentence)
