"""Who is in the cluster: numbered views made from heartbeats.

`Membership` (state.py) is a plain state machine without clock or socket: it takes events and
`now`, and returns actions. `HeadTable` (head.py) is what a head knows of the members; `View`
(view.py) is what everybody gets. peercached/peer/heartbeats.py puts it on the network.
"""

from peercached.membership.state import (
    Action,
    Heartbeat,
    HeartbeatAnswer,
    Membership,
    PushView,
    Refused,
    SendHeartbeat,
    ViewChanged,
)
from peercached.membership.timing import Timing
from peercached.membership.view import NodeAddress, Verdict, View

__all__ = [
    "Action",
    "Heartbeat",
    "HeartbeatAnswer",
    "Membership",
    "NodeAddress",
    "PushView",
    "Refused",
    "SendHeartbeat",
    "Timing",
    "Verdict",
    "View",
    "ViewChanged",
]
