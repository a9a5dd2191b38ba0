"""Follows one get: the data plane times its steps."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from peercache_client.status import Status
from peercached.directory.layout import SELF
from peercached.directory.placement import Placement
from peercached.peer.server.cluster_wide import ClusterWide

if TYPE_CHECKING:
    from peercached._native import Engine

SECONDS_MAX = 60.0
_LENGTH_AT = slice(36, 40)  # of a RecordRow


async def follow_get(
    engine: Engine,
    placement: Placement,
    cluster_wide: ClusterWide,
    namespace: str,
    key: bytes,
    seconds: float,
) -> dict[str, Any]:
    """Runs one get and returns the fields of admin.trace.Trace. Raises ValueError for an invalid
    key, or for `seconds` out of range."""
    if not 0 < seconds <= SECONDS_MAX:
        raise ValueError(f"{seconds:g} seconds: more than 0 and at most {SECONDS_MAX:g} can be had")
    digest = engine.digest(namespace, key)
    # A get must name the page's length, so ask for it before the clock starts.
    length = await _length_of(engine, cluster_wide, namespace, key, digest)
    status, began, ended, steps = await asyncio.get_running_loop().run_in_executor(
        None, engine.trace_get, namespace, key, length or 1, round(seconds * 1000)
    )
    return {
        "namespace": namespace,
        "digest": digest,
        "length": length,
        "outcome": _word(status),
        "total_us": _us(ended - began),
        "steps": list(_steps(placement, steps, began)),
    }


async def _length_of(
    engine: Engine, cluster_wide: ClusterWide, namespace: str, key: bytes, digest: bytes
) -> int:
    """The page's length in bytes; 0 if neither a node nor the object store has it."""
    row = engine.local_rows(digest)
    if row:
        return int.from_bytes(row[_LENGTH_AT], "little")
    found = await cluster_wide.locate(namespace, key)
    stored = [found["stored"]] if found["stored"] else []
    return next((int(holder["length"]) for holder in [*found["holders"], *stored]), 0)


def _steps(
    placement: Placement,
    steps: list[tuple[str, float, float, int, int]],
    began: float,
) -> Any:
    own = placement.own.address
    # A step is listed when it ends, so each owner comes before the step that it is part of.
    for name, begin, end, holder, status in sorted(steps, key=lambda step: step[1]):
        node = placement.nodes.get(holder)
        step: dict[str, Any] = {
            "name": name,
            "at_us": _us(begin - began),
            "took_us": _us(end - begin),
            "node_id": node.address.node_id if node is not None else "",
            "outcome": _word(status),
            "within": name in ("owner", "copy"),
        }
        if name == "read" and node is not None and holder != SELF:
            step["transport"] = own.transport_to(node.address)
        yield step


def _word(status: int) -> str:
    try:
        return Status(status).name
    except ValueError:
        return Status.absent.name  # not found in this step; the get goes on to the next


def _us(seconds: float) -> float:
    return round(seconds * 1_000_000, 1)
