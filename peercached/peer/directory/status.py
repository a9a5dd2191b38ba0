"""The directory's part of the status document and its health findings."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from peercached.component import Component, Stats
from peercached.directory.followers import followers_of
from peercached.directory.placement import Node, Placement
from peercached.health import Say, kinds
from peercached.health.recent_growth import Lately

if TYPE_CHECKING:
    from peercached._native import Engine

# A member that has not all records for less than this is usually just starting: no finding.
BEHIND_S = 10.0
UNTOLD_S = 600.0


class DirectoryStatus(Component):
    def __init__(self, engine: Engine, placement: Placement) -> None:
        self._engine = engine
        self._placement = placement
        self._behind_since: dict[Node, float] = {}
        self._lately = Lately()

    def sections(self, stats: Stats) -> dict[str, Any]:
        del stats
        return {
            "followers": [
                {"node_id": node.address.node_id, "state": one.state, "behind": one.behind}
                for node, one in followers_of(self._engine, self._placement).items()
            ]
        }

    def control_counters(self, stats: Stats) -> dict[str, int]:
        return {"events_dropped": int(stats.get("events_dropped", 0))}

    def say(self, say: Say, stats: Stats) -> None:
        self._say_behind(say)
        untold = stats.get("operations", {}).get("unpublished", 0)
        if untold := self._lately.grown("untold", untold, UNTOLD_S):
            say(
                kinds.SET_WITHOUT_OWNERS,
                f"Not every owner took the records of {untold} set batches in time. These follow. "
                "Until then other nodes may not find these pages.",
            )
        copies = stats.get("copies", {})
        if no_room := self._lately.grown("no room", copies.get("no_room", 0)):
            say(
                kinds.DIRECTORY_FULL,
                f"The records of other nodes had no room here, {no_room} times in the last hour: "
                f"{copies.get('records')} of {copies.get('records_max')} are in use.",
                "Raise directory_capacity; until then this node asks owners for their pages.",
            )
        if dropped := self._lately.grown("dropped", stats.get("events_dropped", 0)):
            say(
                kinds.REQUESTS_DROPPED,
                f"The control plane was overloaded: {dropped} requests from the data plane were "
                "dropped in the last hour.",
                "Give the daemon more CPU. If it continues, report it with this status.",
            )

    def _say_behind(self, say: Say) -> None:
        now = time.monotonic()
        followers = followers_of(self._engine, self._placement)
        states = {node: one.state for node, one in followers.items() if one.state != "live"}
        self._behind_since = {node: self._behind_since.get(node, now) for node in states}
        for node, since in self._behind_since.items():
            if now - since > BEHIND_S:
                name = node.address.node_id
                say(
                    kinds.RECORDS_WAIT,
                    f"{name} does not have the records of this node ({states[node]}).",
                    "Pages set here may be misses there. If this lasts, check the daemon on "
                    f"{name}, and whether it reaches this node's data_port.",
                    about=name,
                )
