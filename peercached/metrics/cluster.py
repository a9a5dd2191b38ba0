"""The members of the cluster, in this node's view."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client import Metric

from peercached.health.kinds import KINDS
from peercached.metrics.bounded import by_peer
from peercached.metrics.single import Single, at, gauge, singles

_SINGLES = (
    Single("gauge", "view_number", "membership.view_number", "Number of the view."),
    Single("gauge", "is_master", "membership.is_master", "Whether this node is a master."),
    Single("counter", "heartbeats_sent", "membership.heartbeats_sent", "Heartbeats to masters."),
    Single(
        "counter",
        "life_signs",
        "membership.signs_counted",
        "Signs of life of members, which stand in for heartbeats.",
    ),
    Single("gauge", "drain_pages", "drain.pages", "Pages held when the drain began."),
    Single("gauge", "drain_handed_pages", "drain.handed_pages", "Pages that peers have taken."),
    Single(
        "counter", "adopted_pages", "handover.adopted", "Pages taken over from nodes that drain."
    ),
    Single("counter", "adopted_bytes", "handover.adopted_bytes", "Bytes of them."),
    Single("counter", "adopt_refused_pages", "handover.adopt_refused", "Pages not taken over."),
)
_STATES = ("alive", "leaving")


def families(status: Mapping[str, Any]) -> Iterator[Metric]:
    members = at(status, "membership.members") or []
    states = Tally(member["state"] for member in members)
    by_state = gauge("members", "Nodes in the view, this one among them, by state.", ["state"])
    for state in _STATES:
        by_state.add_metric([state], states[state])
    yield by_state
    suspects = gauge("suspects", "Members whose pages are misses for now.")
    suspects.add_metric([], sum(bool(member["suspect"]) for member in members))
    yield suspects
    suspect = gauge("peer_suspect", "Whether a peer's pages are misses for now.", ["peer"])
    others = [member for member in members if not member["is_self"]]
    for peer, row in by_peer(others, "node_id", ["suspect"]).items():
        suspect.add_metric([peer], row["suspect"])
    yield suspect
    share = gauge("ring_share_ratio", "Part of all digests that this node owns first.")
    share.add_metric([], sum(member["ring_share"] for member in members if member["is_self"]))
    yield share

    masters = at(status, "membership.masters") or []
    answering = gauge("masters", "Masters of the membership, by whether they answer.", ["answers"])
    answers = Tally("yes" if master["answers"] else "no" for master in masters)
    for word in ("yes", "no"):
        answering.add_metric([word], answers[word])
    yield answering

    health = gauge(
        "health_sentences",
        "Sentences of `peercachectl status`, by the code of their kind (docs/health.md).",
        ["severity", "code"],
    )
    found = Tally(finding["code"] for finding in status.get("health", ()))
    for kind in KINDS.values():
        health.add_metric([kind.severity, kind.code], found[kind.code])
    yield health
    draining = gauge("draining", "Whether this node drains, or has left after it.")
    draining.add_metric([], (at(status, "drain.state") or "no") != "no")
    yield draining
    yield from singles(status, _SINGLES)
