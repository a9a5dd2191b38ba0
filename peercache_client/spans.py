"""The span of a call, for OpenTelemetry.

The client depends on no package. It makes a span only if the program itself has loaded
`opentelemetry-api`, and only for a trace that is sampled. Any other call pays for one look into
`sys.modules`, or for one look at the current span.
"""

from __future__ import annotations

import contextvars
import re
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from peercache_client.status import Status

T = TypeVar("T")

_API: Final = "opentelemetry.trace"
# https://www.w3.org/TR/trace-context/#traceparent-header. A later version may append fields.
_TRACEPARENT: Final = re.compile(
    r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?", re.ASCII
)
_SAMPLED: Final = 1


class CallSpan:
    """A sampled call. `caller`: what the daemon is told (docs/protocol.md, "IPC")."""

    __slots__ = ("_span", "caller")

    def __init__(self, caller: bytes, span: Any = None) -> None:
        self.caller = caller
        self._span = span

    def end(self, statuses: Sequence[Status] | None) -> None:
        """None: the call was interrupted."""
        if self._span is None:
            return
        try:
            if statuses is not None:
                self._span.set_attribute("peercache.pages", len(statuses))
                self._span.set_attribute("peercache.ok", sum(map(bool, statuses)))
            self._span.end()
        except Exception:  # the program's tracing must not end a call
            return


def begin(name: str, traceparent: str | None) -> CallSpan | None:
    """The span of a call that begins now. None: nobody records it.

    `traceparent`: the caller's, in the form of W3C Trace Context. None: that of the program's
    current span. As that standard asks, a malformed one counts as none given.
    """
    api: Any = sys.modules.get(_API)
    if traceparent is None:
        if api is None:
            return None
        given = None
    else:
        given = _parsed(traceparent)
        if given is None:
            return None
    try:
        return _begun(api, name, given)
    except Exception:  # as in end()
        return None if given is None else CallSpan(b"".join(given))


def within(
    name: str, traceparent: str | None, call: Callable[[bytes], list[Status]]
) -> list[Status]:
    """Makes the call inside its span, if it has one."""
    span = begin(name, traceparent)
    if span is None:
        return call(b"")
    statuses = None
    try:
        statuses = call(span.caller)
    finally:
        span.end(statuses)
    return statuses


def carried(call: Callable[[], T]) -> Callable[[], T]:
    """The call, with the program's current span when another thread runs it."""
    return call if sys.modules.get(_API) is None else partial(contextvars.copy_context().run, call)


def _begun(api: Any, name: str, given: tuple[bytes, bytes] | None) -> CallSpan | None:
    parent = None
    if given is not None:
        if api is None:
            return CallSpan(b"".join(given))
        trace_id, span_id = (int.from_bytes(number, "big") for number in given)
        flags = api.TraceFlags(_SAMPLED)
        context = api.SpanContext(trace_id, span_id, is_remote=True, trace_flags=flags)
        parent = api.set_span_in_context(api.NonRecordingSpan(context))
    else:
        current = api.get_current_span().get_span_context()
        if not current.trace_flags & _SAMPLED or not current.is_valid:
            return None
    tracer = api.get_tracer("peercache_client")
    span = tracer.start_span(name, context=parent, kind=api.SpanKind.CLIENT)
    own = span.get_span_context()
    if not own.trace_flags & _SAMPLED or not own.is_valid:
        return None  # the program's sampler has decided so
    return CallSpan(own.trace_id.to_bytes(16, "big") + own.span_id.to_bytes(8, "big"), span)


def _parsed(traceparent: str) -> tuple[bytes, bytes] | None:
    """The numbers of trace and span, if it is sampled."""
    if not isinstance(traceparent, str):
        raise TypeError(f"traceparent must be str, not {type(traceparent).__name__}")
    found = _TRACEPARENT.fullmatch(traceparent)
    if found is None or not int(found[3], 16) & _SAMPLED:
        return None
    trace_id, span_id = bytes.fromhex(found[1]), bytes.fromhex(found[2])
    return (trace_id, span_id) if any(trace_id) and any(span_id) else None
