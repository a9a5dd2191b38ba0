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
        say(
            kinds.OUT_OF_CLUSTER,
            f"The cluster refuses this node: {refused}.",
            "Fix that, then restart this daemon.",
        )
    elif problem:
        go_on = f"keeps view {view.counter}" if view.number else "serves only its own pages"
        say(
            kinds.ETCD_UNREACHABLE,
            f"This node has no session with etcd: {problem}. Meanwhile it {go_on}.",
            "Check etcd and etcd_endpoints. This node keeps trying.",
        )
    elif waits:
        say_waits(say, waits)
    elif missing:
        names = ", ".join(missing[:NAMES_MAX]) + (", ..." if len(missing) > NAMES_MAX else "")
        say(
            kinds.ETCD_LOST_MEMBERS,
            f"etcd lost its entries for {names}. This node keeps view {view.counter} for one "
            "lease time.",
            "Running nodes register again by themselves. The others then leave the view.",
        )
    elif view.number == 0:
        say(
            kinds.NOT_IN_A_VIEW,
            "Registered in etcd, but not in a view yet: this node serves only its own pages.",
            "It joins by itself, within the time of a lease.",
        )
