"""Messages of membership to other nodes, and its actions: requests to the daemon around it."""

from __future__ import annotations

from dataclasses import dataclass

from peercached.membership.updates import ViewUpdate
from peercached.membership.view import Member, NodeAddress, Verdict, View


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """From a member to a master, or from a master to a member when it pushes a view."""

    sender: Member  # state LEFT: its goodbye, the last heartbeat
    view_number: int  # the highest that the sender knows
    update: ViewUpdate | None = None


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer:
    verdict: Verdict
    reason: str = ""
    update: ViewUpdate | None = None  # if our view is newer than the sender's
    responder: str = ""
    accused: int = 0  # above 0: we hold the sender dead up to this sequence; it may object
    wants_view: bool = False  # the sender's view is newer: it should send it


@dataclass(frozen=True, slots=True)
class SendBeat:
    """Send `beat`. Call answered() or failed() for the endpoint within the call deadline. `only`:
    send it to no other node than this one, by node id and key."""

    endpoint: str
    beat: Heartbeat
    only: NodeAddress | None = None


@dataclass(frozen=True, slots=True)
class PushView:
    """Send a member the new view at once. If that is lost, its next heartbeat fetches the view."""

    to: NodeAddress
    beat: Heartbeat


@dataclass(frozen=True, slots=True)
class Probe:
    """Ask at once whether `target` lives, and call probed(). Ask it directly, within one call
    deadline, or through the member `via`, within two."""

    target: NodeAddress
    via: NodeAddress | None
    round: int


@dataclass(frozen=True, slots=True)
class ViewChanged:
    view: View


@dataclass(frozen=True, slots=True)
class Refused:
    """Another live process has this node id. A daemon that is starting must stop. A running one
    is alone until the other is gone."""

    reason: str


Action = SendBeat | PushView | Probe | ViewChanged | Refused
