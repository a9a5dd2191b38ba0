"""`peercachectl status --all`: one line for each member."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from peercached.admin.client import Refused, Unreachable
from peercached.admin.status import Status
from peercached.cli.connection import Target
from peercached.cli.output import count, duration, percent, share, size

_CALLS_MAX = 16

COLUMNS = (
    "node",
    "role",
    "health",
    ">pool",
    ">used",
    ">hit rate",
    ">workers",
    ">up",
    "version",
)


def statuses(target: Target, here: Status) -> dict[str, Status | str]:
    """By node id: the member's status, or why it gave none."""
    members = [member.node_id for member in here.membership.members]
    if here.node.id not in members:
        members.append(here.node.id)

    def ask(node_id: str) -> Status | str:
        if node_id == here.node.id:
            return here
        try:
            with replace(target, node=node_id).admin() as admin:
                return admin.status()
        except (Unreachable, Refused) as error:
            return str(error)

    with ThreadPoolExecutor(_CALLS_MAX) as calls:
        return dict(zip(members, calls.map(ask, members), strict=True))


def rows(found: dict[str, Status | str], here: Status) -> Iterator[tuple[str, ...]]:
    """In the order of COLUMNS."""
    for node_id, status in found.items():
        if isinstance(status, str):
            yield (node_id, "", f"no answer: {status}", *[""] * (len(COLUMNS) - 3))
            continue
        yield (
            node_id,
            status.node.role,
            worst(status),
            size(status.pool.capacity_bytes),
            share(status.pool.used_bytes, status.pool.capacity_bytes),
            percent(status.demand.hit_rate),
            count(len(status.workers)),
            duration(status.node.uptime_s),
            status.node.version,
        )
    for one in here.departed:
        if one.lost:
            yield (one.node_id, "", f"gone for {duration(one.age_s)}", *[""] * (len(COLUMNS) - 3))


def worst(status: Status) -> str:
    """How bad it is, and the codes of that severity."""
    for severity in ("error", "warning"):
        codes = [entry.code for entry in status.health if entry.severity == severity]
        if codes:
            return f"{severity}: {', '.join(dict.fromkeys(codes))}"
    return "good"
