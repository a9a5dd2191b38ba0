"""Health sentences of the etcd membership for `status`, with remedies."""

from __future__ import annotations

from collections.abc import Sequence

from peercached.health import Say, kinds
from peercached.membership import View
from peercached.peer.membership.held_back import say_waits

NAMES_MAX = 5


def say(
    say: Say, view: View, refused: str, problem: str, waits: str, missing: Sequence[str]
) -> None:
    """Reports to `say`. `problem` is empty while the session with etcd is up. `waits` says why this
    node does not join yet, empty if it may. `missing`: members of the view that etcd lacks."""
    if refused:
        say(kinds.OUT_OF_CLUSTER, f"Out of the cluster: {refused}.", "Restart it after that.")
    elif problem:
        go_on = f"goes on with view {view.counter}" if view.number else "serves only its own pages"
        say(
            kinds.ETCD_UNREACHABLE,
            f"etcd keeps no membership for this node, which {go_on}: {problem}.",
            "Look at etcd and at etcd_endpoints; this node keeps trying.",
        )
    elif waits:
        say_waits(say, waits)
    elif missing:
        names = ", ".join(missing[:NAMES_MAX]) + (", ..." if len(missing) > NAMES_MAX else "")
        say(
            kinds.ETCD_LOST_MEMBERS,
            f"etcd has come back without {names}; this node keeps view {view.counter} for the "
            "time of a lease.",
            "They register again by themselves; who does not is gone, and out of the view then.",
        )
    elif view.number == 0:
        say(
            kinds.NOT_IN_A_VIEW,
            "Registered in etcd, but not in a view yet: this node serves only its own pages.",
            "It joins by itself, within the time of a lease.",
        )
