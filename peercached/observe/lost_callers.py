"""gRPC's complaint about a caller that went away is no error of ours."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from grpc.aio import InternalError

log = logging.getLogger(__name__)


def expect_lost_callers(loop: asyncio.AbstractEventLoop) -> None:
    """Of a connection that ends while an answer is written, gRPC lets this error out of a task of
    its own, unless it has seen the end before. Everything else is logged as always."""
    loop.set_exception_handler(_handle)


def _handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    if isinstance(context.get("exception"), InternalError):
        log.debug("a caller went away before its answer: %s", context["exception"])
        return
    loop.default_exception_handler(context)
