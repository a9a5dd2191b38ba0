"""Computes the masters. Every node does so from the same view, without an election.

Safety does not depend on it. If two nodes disagree, or wrongly act as masters, their tables
merge (table.py) and the higher view number wins (view.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nsmallest

from peercached.membership.view import NO_HEAD, Member, State


def _place(member: Member) -> tuple[bool, int, str]:
    no_head = member.head_rank == NO_HEAD
    return (no_head, member.head_rank, member.address.node_id)


def masters_of(members: Iterable[Member], limit: int) -> tuple[Member, ...]:
    """Heads in the order of discovery_addr, then the others by node id (by default the host name).
    A leaving member is a master only if every member is leaving."""
    present = [m for m in members if m.state in (State.ALIVE, State.LEAVING)]
    staying = [m for m in present if m.state is State.ALIVE]
    return tuple(nsmallest(limit, staying or present, key=_place))
