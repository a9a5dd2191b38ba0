"""The members of the cluster, in this node's view."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterator

from prometheus_client import Metric

from peercached.admin.status import Status
from peercached.health.kinds import KINDS
from peercached.metrics.bounded import by_peer
from peercached.metrics.single import Single, gauge, singles

_SINGLES = (
    Single("gauge", "view_number", lambda s: s.membership.view_number, "Number of the view."),
    Single(
        "gauge", "is_master", lambda s: s.membership.is_master, "Whether this node is a master."
    ),
    Single(
        "counter",
        "heartbeats_sent",
        lambda s: s.membership.heartbeats_sent,
        "Heartbeats to masters.",
    ),
    Single(
        "counter",
        "life_signs",
        lambda s: s.membership.signs_counted,
        "Signs of life of members, which stand in for heartbeats.",
    ),
    Single("gauge", "drain_pages", lambda s: s.drain.pages, "Pages held when the drain began."),
    Single(
        "gauge",
        "drain_handed_pages",
        lambda s: s.drain.handed_pages,
        "Pages that peers have taken.",
    ),
    Single(
        "counter",
        "adopted_pages",
        lambda s: s.handover.adopted,
        "Pages taken over from nodes that drain or are full.",
    ),
    Single("counter", "adopted_bytes", lambda s: s.handover.adopted_bytes, "Bytes of them."),
    Single(
        "counter",
        "adopt_refused_pages",
        lambda s: s.handover.adopt_refused,
        "Pages not taken over.",
    ),
    Single(
        "counter",
        "replicated_pages",
        lambda s: s.handover.replicated,
        "Pages copied from other nodes because workers here read them often.",
    ),
    Single("counter", "replicated_bytes", lambda s: s.handover.replicated_bytes, "Bytes of them."),
    Single(
        "counter",
        "replicate_refused_pages",
        lambda s: s.handover.replicate_refused,
        "Pages read often from other nodes that were not copied.",
    ),
    Single(
        "counter",
        "pushed_pages",
        lambda s: s.push.pages,
        "Pages that another node took as soon as they were set (write_policy).",
    ),
    Single("counter", "pushed_bytes", lambda s: s.push.bytes, "Bytes of them."),
    Single(
        "counter",
        "push_kept_pages",
        lambda s: s.push.kept,
        "Pages that no node took when they were set.",
    ),
    Single(
        "counter",
        "spilled_pages",
        lambda s: s.spill.pages,
        "Pages that went to another node before this one evicted them.",
    ),
    Single("counter", "spilled_bytes", lambda s: s.spill.bytes, "Bytes of them."),
    Single(
        "counter",
        "spill_duplicate_pages",
        lambda s: s.spill.duplicates,
        "Pages about to be evicted that another node had already.",
    ),
    Single(
        "counter",
        "spill_refused_pages",
        lambda s: s.spill.refused,
        "Pages about to be evicted that a node did not take.",
    ),
)
_STATES = ("alive", "leaving")


def families(status: Status) -> Iterator[Metric]:
    members = status.membership.members
    states = Tally(member.state for member in members)
    by_state = gauge("members", "Nodes in the view, this one among them, by state.", ["state"])
    for state in _STATES:
        by_state.add_metric([state], states[state])
    yield by_state
    suspects = gauge("suspects", "Members whose pages are misses for now.")
    suspects.add_metric([], sum(member.suspect for member in members))
    yield suspects
    suspect = gauge("peer_suspect", "Whether a peer's pages are misses for now.", ["peer"])
    others = [member for member in members if not member.is_self]
    for peer, (count,) in by_peer(others, lambda m: m.node_id, lambda m: m.suspect).items():
        suspect.add_metric([peer], count)
    yield suspect
    share = gauge("ring_share_ratio", "Part of all digests that this node owns first.")
    share.add_metric([], sum(member.ring_share for member in members if member.is_self))
    yield share

    masters = status.membership.masters
    answering = gauge("masters", "Masters of the membership, by whether they answer.", ["answers"])
    answers = Tally("yes" if master.answers else "no" for master in masters)
    for word in ("yes", "no"):
        answering.add_metric([word], answers[word])
    yield answering

    health = gauge(
        "health_sentences",
        "Sentences of `peercachectl status`, by the code of their kind (docs/health.md).",
        ["severity", "code"],
    )
    found = Tally(finding.code for finding in status.health)
    for kind in KINDS.values():
        health.add_metric([kind.severity, kind.code], found[kind.code])
    yield health
    draining = gauge("draining", "Whether this node drains, or has left after it.")
    draining.add_metric([], status.drain.state != "no")
    yield draining
    yield from singles(status, _SINGLES)
