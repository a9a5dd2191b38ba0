"""The daemon's interface to membership. embedded/heartbeats.py implements it with masters among the
nodes, etcd/membership.py with etcd."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from peercached.health import Say
from peercached.membership import Heartbeat, HeartbeatAnswer, NodeAddress, View
from peercached.news import Event


@dataclass(frozen=True)
class ViewFound(Event):
    """From now on this view is in force."""

    view: View


@dataclass(frozen=True)
class JoinRefused(Event):
    """The cluster refuses this node."""

    reason: str


class Cluster(Protocol):
    """Use it on the event loop's thread. Implementations tell ViewFound and JoinRefused."""

    @property
    def view(self) -> View:
        """The newest view that contains this process; number 0 if there is none yet."""

    @property
    def refused(self) -> str:
        """Why this node id cannot be a member; empty if it can."""

    @property
    def waits(self) -> str:
        """Why reachable members have not let this node join since it started. Empty if it has
        joined or reaches no member."""

    @property
    def outside(self) -> bool:
        """Whether this process is in no view of its cluster, for whatever reason."""

    def start(self) -> None: ...
    async def settle(self, timeout_s: float) -> None:
        """Waits until this node is in a view, is refused, or can reach nobody, or until a timeout.
        The timeout is at least `timeout_s`."""

    def announce_drain(self) -> None:
        """Shows the state LEAVING to the other nodes; announce_stay() takes that back."""

    def announce_stay(self) -> None: ...
    async def leave(self, timeout_s: float) -> None:
        """Says goodbye, so that the other nodes know at once that this node is gone."""

    async def stop(self) -> None: ...

    def on_heartbeat(self, beat: Heartbeat) -> HeartbeatAnswer:
        """Answers a member's heartbeat. Raises LookupError if etcd keeps the membership."""

    def has_left(self, node_id: str, incarnation: int) -> bool:
        """Whether that process said goodbye and is no member any more."""

    async def reaches(self, target: NodeAddress) -> bool: ...
    def endpoints(self) -> set[str]:
        """Endpoints that membership calls although they may not be members."""

    def document(self) -> dict[str, Any]:
        """Membership's part of the status document."""

    def say(self, say: Say) -> None:
        """Reports membership's health sentences to `say`."""
