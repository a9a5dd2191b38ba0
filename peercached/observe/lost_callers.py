"""Keeps a caller's disconnect from being logged as an error."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from grpc.aio import InternalError

log = logging.getLogger(__name__)

GRPC_LOG = logging.getLogger("grpc._cython.cygrpc")


def expect_lost_callers(loop: asyncio.AbstractEventLoop) -> None:
    """Logs an InternalError of gRPC at debug level. gRPC raises one if the connection ends while it
    writes an answer: in a task of its own, or where it logs the traceback itself. All other errors
    are logged as usual."""
    loop.set_exception_handler(_handle)
    GRPC_LOG.addFilter(_is_no_lost_caller)


def _is_no_lost_caller(record: logging.LogRecord) -> bool:
    lost = record.exc_info is not None and isinstance(record.exc_info[1], InternalError)
    if lost:
        log.debug("%s", record.getMessage())
    return not lost


def _handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    if isinstance(context.get("exception"), InternalError):
        log.debug("a caller went away before its answer: %s", context["exception"])
        return
    loop.default_exception_handler(context)
