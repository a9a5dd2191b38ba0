"""Who is in the cluster: numbered views that all nodes agree on.

`Membership` (state.py) is a plain state machine without clock or socket: it takes events and
`now`, and returns actions (messages.py). `View` (view.py) is what everybody gets. Every node can
be a master: order.py says who is. peercached/peer/membership/embedded puts it on the network.
"""

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
from peercached.membership.state import Membership
from peercached.membership.timing import Timing
from peercached.membership.updates import ViewUpdate
from peercached.membership.view import Gone, Member, NodeAddress, State, Verdict, View

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
    "Verdict",
    "View",
    "ViewChanged",
    "ViewUpdate",
]
