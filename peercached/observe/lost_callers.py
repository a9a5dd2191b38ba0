"""Keeps a caller's disconnect from being logged as an error."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from grpc.aio import InternalError

log = logging.getLogger(__name__)


def expect_lost_callers(loop: asyncio.AbstractEventLoop) -> None:
    """Logs an unhandled InternalError of gRPC at debug level. gRPC raises one in a task of its own
    if the connection ends while it writes an answer. All other errors are logged as usual."""
    loop.set_exception_handler(_handle)


def _handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    if isinstance(context.get("exception"), InternalError):
        log.debug("a caller went away before its answer: %s", context["exception"])
        return
    loop.default_exception_handler(context)
