"""Cluster membership: numbered views that all nodes agree on.

`Membership` (membership.py) is a state machine without clock or socket. It takes events and `now`,
and returns actions (messages.py). It produces views (view.py). state.py has its phases and their
transitions. Every node can be a master: order.py computes the masters from the view.
peercached/peer/membership/embedded connects it to the network.
"""

from peercached.membership.membership import Membership
from peercached.membership.messages import (
    Action,
    Heartbeat,
    HeartbeatAnswer,
    Probe,
    PushView,
    Refused,
    SendBeat,
    ViewChanged,
)
from peercached.membership.signs import OwnSign, Sign
from peercached.membership.timing import Timing
from peercached.membership.updates import ViewUpdate
from peercached.membership.view import Gone, Member, NodeAddress, State, Transports, Verdict, View

__all__ = [
    "Action",
    "Gone",
    "Heartbeat",
    "HeartbeatAnswer",
    "Member",
    "Membership",
    "NodeAddress",
    "OwnSign",
    "Probe",
    "PushView",
    "Refused",
    "SendBeat",
    "Sign",
    "State",
    "Timing",
    "Transports",
    "Verdict",
    "View",
    "ViewChanged",
    "ViewUpdate",
]
