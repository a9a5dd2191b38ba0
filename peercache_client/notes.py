"""The client's messages to the program's log."""

from __future__ import annotations

import contextlib
import logging

log = logging.getLogger("peercache_client")


def say(level: int, text: str, *arguments: object, trace: bool = False) -> None:
    """Logs, and ignores exceptions of the program's log handlers: logging must not end a call.
    `trace` adds the traceback of the current exception."""
    with contextlib.suppress(Exception):
        log.log(level, text, *arguments, exc_info=trace)
