"""One traced get, with names in place of the data plane's numbers."""

from __future__ import annotations

from dataclasses import dataclass

from peercache_client.status import Status
from peercached.directory.layout import SELF
from peercached.directory.placement import Placement

RawStep = tuple[str, int, int, int, int, int, int]
RawCall = tuple[bytes, bytes, str, int, int, int, int, int, list[RawStep], int]

# Steps that are part of the step around them, and not of the get itself.
_WITHIN = frozenset({"owner", "copy"})


@dataclass(frozen=True, slots=True)
class Step:
    """Times are nanoseconds of time.monotonic_ns()."""

    name: str
    begin_ns: int
    end_ns: int
    node_id: str  # the node found or asked; empty: none, or several
    transport: str  # of a READ: "rdma" or "tcp"
    outcome: str  # a page status, or "partial"
    pages: int
    found: int
    within: bool


@dataclass(frozen=True, slots=True)
class Call:
    """As Step. The caller's span is its parent."""

    trace_id: int
    span_id: int
    namespace: str
    begin_ns: int
    end_ns: int
    pages: int
    ok: int
    ok_bytes: int
    steps: list[Step]
    left_out: int  # steps beyond the data plane's bound


def named(raw: RawCall, placement: Placement) -> Call:
    """A call as Engine.take_traced_calls() gives it."""
    trace_id, span_id, namespace, begin_ns, end_ns, pages, ok, ok_bytes, steps, left_out = raw
    # A step is listed when it ends, so each part comes before the step that it is part of.
    in_order = sorted(steps, key=lambda step: (step[1], -step[2]))
    return Call(
        int.from_bytes(trace_id, "big"),
        int.from_bytes(span_id, "big"),
        namespace,
        begin_ns,
        end_ns,
        pages,
        ok,
        ok_bytes,
        [_step(raw_step, placement) for raw_step in in_order],
        left_out,
    )


def _step(raw: RawStep, placement: Placement) -> Step:
    name, begin_ns, end_ns, holder, status, pages, found = raw
    node = placement.nodes.get(holder)
    transport = ""
    if name == "read" and node is not None and holder != SELF:
        transport = placement.own.address.transport_to(node.address)
    return Step(
        name,
        begin_ns,
        end_ns,
        node.address.node_id if node is not None else "",
        transport,
        _outcome(status, pages, found),
        pages,
        found,
        name in _WITHIN,
    )


def _outcome(status: int, pages: int, found: int) -> str:
    if found == pages:
        return Status.ok.name
    if found:
        return "partial"
    try:
        word = Status(status)
    except ValueError:
        return Status.absent.name  # not found in this step; the get goes on to the next
    return Status.absent.name if word is Status.ok else word.name
