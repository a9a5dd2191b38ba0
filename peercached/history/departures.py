"""Nodes that left the view: who, when and why. They are remembered until they are back, an operator
forgets them, or a day has passed."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from peercached.component import Component, Stats
from peercached.directory.placement import Change
from peercached.health import Say, kinds
from peercached.history.event_log import KEPT_S, EventLog
from peercached.peer.membership.cluster import Cluster

DEPARTED_MAX = 256
NAMED_MAX = 8


@dataclass(frozen=True, slots=True)
class Departed:
    """`lost`: it went without a goodbye. `at`: seconds since 1970."""

    node_id: str
    incarnation: int
    host: str
    at: float
    lost: bool
    why: str


class Departures(Component):
    """Follows views, on the event loop's thread."""

    def __init__(
        self,
        events: EventLog,
        cluster: Cluster,
        member_ttl_s: float,
    ) -> None:
        self._events = events
        self._cluster = cluster
        self._member_ttl_s = member_ttl_s
        self._departed: dict[str, Departed] = {}

    def restore(self, departed: Iterable[Departed]) -> None:
        """Takes the departures that an earlier start knew, latest last. Those of nodes that have
        come back meanwhile end with the first view."""
        for one in departed:
            self._remember(one)

    def view_changed(self, change: Change) -> None:
        if change.view.number == 0:
            return  # this node has left, not the others
        present = change.view.by_id
        before = {one.node_id: one.incarnation for one in self._departed.values()}
        before |= {gone.address.node_id: gone.address.incarnation for gone in change.removed}
        back = {node.address.node_id: node for node in change.added}
        for node in change.removed:
            address = node.address
            if address.node_id in back:
                continue
            node_id, incarnation = address.node_id, address.incarnation
            lost = not self._cluster.has_left(node_id, incarnation)
            silence = f"it did not answer for {self._member_ttl_s:g} s and said no goodbye"
            why = silence if lost else "it left"
            gone = Departed(node_id, incarnation, address.host, time.time(), lost, why)
            self._remember(gone)
            self._events.add("lost" if lost else "left", _sentence(why), node_id)
        for node_id, node in back.items():
            incarnation = node.address.incarnation
            # The same one: it was frozen or cut off.
            restarted = before.get(node_id, incarnation) != incarnation
            text = f"at {node.address.endpoint}, in view {change.view.counter}"
            self._events.add("restarted" if restarted else "joined", text, node_id)
        for node_id in present.keys() & self._departed.keys():
            del self._departed[node_id]

    def forget(self, node_id: str) -> None:
        """An operator says that the node does not come back."""
        if self._departed.pop(node_id, None) is not None:
            self._events.add("forget", "An operator said that it does not come back.", node_id)

    def all(self) -> list[Departed]:
        """Latest first."""
        oldest = time.time() - KEPT_S
        for node_id in [one.node_id for one in self._departed.values() if one.at < oldest]:
            del self._departed[node_id]
        return sorted(self._departed.values(), key=lambda one: -one.at)

    def document(self) -> list[dict[str, Any]]:
        """admin.status.DepartedNode, for each."""
        now = time.time()
        return [{**asdict(one), "age_s": max(now - one.at, 0.0)} for one in self.all()]

    def sections(self, stats: Stats) -> dict[str, Any]:
        del stats
        return {"departed": self.document()}

    def say(self, say: Say, stats: Stats) -> None:
        del stats
        lost = [one for one in self.all() if one.lost]
        for one in lost[:NAMED_MAX]:
            say(
                kinds.NODE_LOST,
                f"{one.node_id} at {one.host} is gone: {one.why}. Its pages are misses.",
                "peercachectl nodes says since when. Look at that host and its log, and start the "
                f"daemon again. If it does not come back: peercachectl forget {one.node_id}.",
                about=one.node_id,
            )
        if len(lost) > NAMED_MAX:
            say(
                kinds.NODE_LOST,
                f"{len(lost) - NAMED_MAX} more nodes are gone without a goodbye.",
                "Run peercachectl nodes: it names them.",
            )

    def _remember(self, one: Departed) -> None:
        self._departed.pop(one.node_id, None)
        self._departed[one.node_id] = one
        while len(self._departed) > DEPARTED_MAX:
            del self._departed[next(iter(self._departed))]


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."
