"""What the daemon wants of membership, whoever keeps it: the masters among the nodes
(heartbeats.py) or etcd (etcd_membership.py)."""

from __future__ import annotations

from typing import Any, Protocol

from peercached.health import Say
from peercached.membership import Heartbeat, HeartbeatAnswer, NodeAddress, View


class Cluster(Protocol):
    """On the event loop. New views come by the callback `on_view`."""

    @property
    def view(self) -> View:
        """The newest that has this process; number 0 if none has yet."""

    @property
    def refused(self) -> str:
        """Why this node id cannot be a member; empty if it can."""

    @property
    def waits(self) -> str:
        """Why the others, who can be reached, have not taken this node in since it started; empty
        if they have, or cannot be reached."""

    def start(self) -> None: ...
    async def settle(self, timeout_s: float) -> None:
        """Until start-up need not wait any longer."""

    def announce_drain(self) -> None:
        """The others see the state LEAVING."""

    def announce_stay(self) -> None: ...
    async def leave(self, timeout_s: float) -> None:
        """The others know at once that this node is gone."""

    async def stop(self) -> None: ...

    def on_heartbeat(
        self, beat: Heartbeat, epochs: list[tuple[bytes, int]]
    ) -> tuple[HeartbeatAnswer, list[tuple[bytes, int]]]:
        """LookupError: not here."""

    def has_left(self, node_id: str, incarnation: int) -> bool:
        """That process said that it goes, and is no member."""

    async def reaches(self, target: NodeAddress) -> bool: ...
    def endpoints(self) -> set[str]:
        """Whom it calls although they may not be members."""

    def document(self) -> dict[str, Any]:
        """Its part of the status document."""

    def say(self, say: Say) -> None:
        """What needs attention."""
