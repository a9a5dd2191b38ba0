"""The embedded membership's part of `status`: masters, and sentences with remedies."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from peercached.health import Say, kinds
from peercached.membership import Membership, Verdict
from peercached.membership.links import Link
from peercached.membership.view import NO_HEAD
from peercached.peer.membership.held_back import say_waits

# Seconds that a warning about refused numbers stays in `status`.
REFUSED_LATELY_S = 600.0

_REACH = (
    "Start it, correct its name (DNS or /etc/hosts), or open its meta_port (TCP) in the firewalls "
    "between the two hosts."
)
_ACCEPT = "Something answers there, so the network is open. Do what the reason says."


def document(membership: Membership, now: float) -> dict[str, Any]:
    """The membership section of `status`. Masters are in their order."""
    links = {link.responder or link.endpoint: link for link in membership.links}
    masters = []
    for member in membership.masters(now) if membership.latest.number else ():
        endpoint = member.address.endpoint
        link = links.get(member.node_id) or membership.links.get(endpoint)
        own = member.node_id == membership.address.node_id
        masters.append(
            {
                "node_id": member.node_id,
                "endpoint": endpoint,
                "is_self": own,
                "answers": own or (link is not None and link.answered),
                "problem": "" if own or link is None or link.answered else link.problem,
            }
        )
    return {
        "kind": "embedded",
        "is_master": membership.is_master(now),
        "masters": masters,
        "silence_s": membership.silence_s(now),
        "heartbeats_sent": membership.beats_sent,
        "signs_counted": membership.signs_counted,
    }


def say(membership: Membership, say: Say, now: float) -> None:
    links = list(membership.links)
    reach = membership.reach
    if now - reach.refused_at < REFUSED_LATELY_S:
        say(
            kinds.FAR_NUMBERS,
            f"{reach.refused} messages from members were ignored: their view or sequence number is "
            "far above any number this node knows.",
            "Find the faulty or foreign node. If this node was disconnected for years, restart it.",
        )
    for address in membership.mute(now):
        say(
            kinds.MEMBER_MUTE,
            f"{address.node_id} sends heartbeats, but nobody reaches it at {address.endpoint}. It "
            "is kept out of the cluster.",
            "Open its ports (meta_port, data_port) to the other nodes, or end that daemon. It is "
            "let in once it answers.",
            about=address.node_id,
        )
    if membership.refused:
        say(
            kinds.OUT_OF_CLUSTER,
            f"The cluster refuses this node: {membership.refused}.",
            "Fix that, then restart this daemon.",
        )
        return
    waits = [k for k in links if k.says(Verdict.WAIT)]
    is_member = membership.latest.has(membership.address)
    if waits and not is_member:  # a member with this answer has just joined
        say_waits(say, waits[0].reason)
    elif links and not membership.is_master(now) and not any(k.answered for k in links):
        _say_unreached(membership, say)
    elif links and membership.view.number == 0:
        why = "; ".join(link.problem for link in links if link.problem) or "it is starting"
        say(
            kinds.NOT_IN_A_VIEW,
            f"This node has not joined a view yet and serves only its own pages: {why}.",
            "It joins when a master accepts it. If that takes long, run peercachectl status on the "
            "heads.",
        )
    else:
        is_only_head = membership.own.head_rank != NO_HEAD and all(k.led_home for k in links)
        if is_only_head and len(membership.view.members) == 1:
            say(
                kinds.ALONE,
                "discovery_addr names only this host: the addresses of this host with meta_port "
                f"{membership.address.peer_port} are this node. No other node has joined.",
                "To form a cluster, name two or three hosts, the same on every node. Daemons on "
                "one host need different meta_ports. For a cluster of one node, do nothing.",
            )
        # Of the addresses of one name, one that answers is enough.
        answering = {link.place for link in links if link.is_head and link.answered}
        for link in links:
            if link.led_home or (link.is_head and link.place in answering):
                continue
            if not link.answered and link.failures and link.former is None:
                what = "Head" if link.is_head else "Master"
                how = "does not accept this node" if link.refuses else "cannot be reached"
                say(
                    kinds.MASTER_UNREACHABLE,
                    f"{what} {link.endpoint} {how}: {link.problem}.",
                    f"{_remedy([link])} The other masters do its work meanwhile.",
                )


def _say_unreached(membership: Membership, say: Say) -> None:
    links = list(membership.links)
    why = "; ".join(link.problem for link in links)
    how = "accepts this node" if any(link.refuses for link in links) else "can be reached"
    if membership.view.number == 0:
        say(
            kinds.NO_HEAD,
            f"No head {how}, so this node serves only its own pages: {why}.",
            f"{_remedy(links)} discovery_addr has HOST:meta_port of each head. This node keeps "
            "trying.",
        )
        return
    say(
        kinds.NO_MASTER,
        f"No master {how}: {why}. This node keeps using view {membership.view.counter}, "
        "which may become stale.",
        f"{_remedy(links)} If they stay away, other nodes become masters.",
    )


def _remedy(links: Iterable[Link]) -> str:
    return " ".join(sorted({_ACCEPT if link.refuses else _REACH for link in links}))
