"""The spans of a traced get, in the terms of OpenTelemetry's SDK.

peercached.get                 server span; its parent is the client's span
  peercached.pool, ...         a step of the get
    peercached.owner, ...      a part of that step
"""

from __future__ import annotations

from collections.abc import Iterator

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags

from peercached import __version__
from peercached.tracing.call import Call, Step

# Steps that ask another node.
_AT_PEERS = frozenset({"owner", "promote", "read"})


class SpanMaker:
    """Of one node."""

    def __init__(self, node_id: str) -> None:
        self._node_id = node_id
        # Made by hand: Resource.create() would look at this process and its environment.
        self._resource = Resource(
            {
                "service.name": "peercached",
                "service.version": __version__,
                "service.instance.id": node_id,
            }
        )
        self._scope = InstrumentationScope("peercached", __version__)
        self._ids = RandomIdGenerator()

    def spans(self, call: Call, wall_ns: int) -> Iterator[ReadableSpan]:
        """`wall_ns`: what to add to a monotonic time for one since 1970."""
        caller = _context(call.trace_id, call.span_id, remote=True)
        own = self._new(call)
        attributes: dict[str, str | int] = {
            "peercache.node": self._node_id,
            "peercache.namespace": call.namespace,
            "peercache.pages": call.pages,
            "peercache.ok": call.ok,
            "peercache.bytes": call.ok_bytes,
        }
        if call.left_out:
            attributes["peercache.steps_left_out"] = call.left_out
        yield self._span(
            "get", own, caller, SpanKind.SERVER, attributes, call.begin_ns, call.end_ns, wall_ns
        )
        around, around_end_ns = own, call.end_ns
        for step in call.steps:
            context = self._new(call)
            if not step.within:
                parent, around, around_end_ns = own, context, step.end_ns
            else:
                parent = around if step.begin_ns <= around_end_ns else own
            kind = SpanKind.CLIENT if step.name in _AT_PEERS else SpanKind.INTERNAL
            yield self._span(
                step.name, context, parent, kind, _of_step(step), step.begin_ns, step.end_ns,
                wall_ns,
            )  # fmt: skip

    def _new(self, call: Call) -> SpanContext:
        return _context(call.trace_id, self._ids.generate_span_id(), remote=False)

    def _span(
        self,
        name: str,
        context: SpanContext,
        parent: SpanContext,
        kind: SpanKind,
        attributes: dict[str, str | int],
        begin_ns: int,
        end_ns: int,
        wall_ns: int,
    ) -> ReadableSpan:
        return ReadableSpan(
            "peercached." + name.replace(" ", "_"),
            context,
            parent,
            self._resource,
            attributes,
            kind=kind,
            start_time=begin_ns + wall_ns,
            end_time=end_ns + wall_ns,
            instrumentation_scope=self._scope,
        )


def _context(trace_id: int, span_id: int, remote: bool) -> SpanContext:
    return SpanContext(trace_id, span_id, remote, TraceFlags(TraceFlags.SAMPLED))


def _of_step(step: Step) -> dict[str, str | int]:
    attributes: dict[str, str | int] = {
        "peercache.outcome": step.outcome,
        "peercache.pages": step.pages,
        "peercache.found": step.found,
    }
    if step.node_id:
        attributes["peercache.peer"] = step.node_id
    if step.transport:
        attributes["peercache.transport"] = step.transport
    return attributes
