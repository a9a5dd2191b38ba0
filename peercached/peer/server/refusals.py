"""Ends a peer's call with the gRPC status of its error."""

from __future__ import annotations

import logging
from typing import Any

import grpc
import grpc.aio
from grpc.aio import BaseError

from peercached.peer.rpc.failures import Unable

log = logging.getLogger(__name__)


class Refused(Exception):
    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(details)
        self.code = code
        self.details = details


class Refusals:
    def __init__(self) -> None:
        self.malformed = 0

    async def refuse(self, context: Any, error: Exception) -> None:
        if isinstance(error, Refused):
            code, details = error.code, error.details
        elif isinstance(error, ValueError):
            self.malformed += 1
            code, details = grpc.StatusCode.INVALID_ARGUMENT, str(error)
        elif isinstance(error, LookupError):
            code, details = grpc.StatusCode.FAILED_PRECONDITION, str(error)
        elif isinstance(error, Unable):
            code, details = grpc.StatusCode.RESOURCE_EXHAUSTED, str(error)
        elif isinstance(error, BaseError):
            log.debug("a peer's call ended with the server: %s", error)
            return
        else:
            log.error("internal error in a peer's call", exc_info=error)
            code, details = grpc.StatusCode.INTERNAL, f"{type(error).__name__}: {error}"
        await context.abort(code, details)
