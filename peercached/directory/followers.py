"""The state of our records at the other members."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from peercached.directory.layout import SELF
from peercached.directory.placement import Node, Placement

if TYPE_CHECKING:
    from peercached._native import Engine

# "connecting": it has not asked for our records. "scan": it reads all of them. "silent": it has
# records, but has not asked for changes lately, and uses none of them.
State = Literal["connecting", "scan", "silent", "live"]

# Changes that a follower without any of our records lacks (Engine.followers).
_NO_RECORDS = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Standing:
    state: State
    behind: int = 0  # changes that it is not known to have


def followers_of(engine: Engine, placement: Placement) -> dict[Node, Standing]:
    """Of each other member that owns records, or follows ours for another reason."""
    asked = {incarnation: (lacks, led) for incarnation, lacks, led in engine.followers()}
    owners = {index for index, _ in engine.ring_shares()}
    found: dict[Node, Standing] = {}
    for node in placement.nodes.values():
        lacks, has_lease = asked.get(node.address.incarnation, (None, False))
        if node.index == SELF or (node.index not in owners and not has_lease):
            continue
        if lacks is None:
            found[node] = Standing("connecting")
        elif lacks == _NO_RECORDS:
            found[node] = Standing("scan")
        else:
            found[node] = Standing("live" if has_lease else "silent", lacks)
    return found
