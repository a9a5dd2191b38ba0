"""Which members are the masters: a calculation that everybody does on the same view.

Safety does not hang on it: should two nodes disagree, or think wrongly that they are masters,
their tables merge (table.py) and their views follow each other (view.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nsmallest

from peercached.membership.view import NO_HEAD, Member, State


def _place(member: Member) -> tuple[bool, int, str]:
    no_head = member.head_rank == NO_HEAD
    return (no_head, member.head_rank, member.address.node_id)


def masters_of(members: Iterable[Member], limit: int) -> tuple[Member, ...]:
    """Heads in the order of discovery_addr, then the others by node id (by default the host
    name). One that is about to leave is a master only where all others are, too."""
    present = [m for m in members if m.state in (State.ALIVE, State.LEAVING)]
    staying = [m for m in present if m.state is State.ALIVE]
    return tuple(nsmallest(limit, staying or present, key=_place))
