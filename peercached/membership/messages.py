"""What membership says to other nodes and asks of the daemon around it."""

from __future__ import annotations

from dataclasses import dataclass

from peercached.membership.updates import ViewUpdate
from peercached.membership.view import Member, NodeAddress, Verdict, View


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Of a member to a master; of a master to a member when it pushes a view."""

    sender: Member  # state LEFT: it leaves, this is its last word
    view_number: int  # the highest the sender knows
    update: ViewUpdate | None = None


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer:
    verdict: Verdict
    reason: str = ""
    update: ViewUpdate | None = None  # when newer than the sender's
    responder: str = ""
    accused: int = 0  # above 0: the sender is held for dead up to this sequence, and may object
    wants_view: bool = False  # the sender's is newer: send it


@dataclass(frozen=True, slots=True)
class SendBeat:
    """Report `answered` or `failed` for that endpoint, within the call deadline."""

    endpoint: str
    beat: Heartbeat


@dataclass(frozen=True, slots=True)
class PushView:
    """Tell a member of a new view at once; if it does not arrive, its next heartbeat brings it."""

    to: NodeAddress
    beat: Heartbeat


@dataclass(frozen=True, slots=True)
class Probe:
    """Ask at once whether `target` lives: itself, within the call deadline, or (`via`) through
    another member, within two. Report `probed`."""

    target: NodeAddress
    via: NodeAddress | None
    round: int


@dataclass(frozen=True, slots=True)
class ViewChanged:
    view: View


@dataclass(frozen=True, slots=True)
class Refused:
    """This node id is alive elsewhere. A daemon that starts must stop; one that runs is on
    its own until the other is gone."""

    reason: str


Action = SendBeat | PushView | Probe | ViewChanged | Refused
