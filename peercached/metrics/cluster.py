"""The members of the cluster, in this node's view."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterator

from prometheus_client import Metric

from peercached.admin.status import Status
from peercached.health.kinds import KINDS
from peercached.metrics.bounded import by_peer
from peercached.metrics.table import Counter, Gauge, gauge, labelled, singles

_SINGLES = (
    Gauge("view_number", "membership.view_number", "Number of the view."),
    Gauge("is_master", "membership.is_master", "Whether this node is a master."),
    Counter("heartbeats_sent", "membership.heartbeats_sent", "Heartbeats to masters."),
    Counter(
        "life_signs",
        "membership.signs_counted",
        "Signs of life of members, which stand in for heartbeats.",
    ),
    Gauge(
        "suspects",
        lambda s: sum(member.suspect for member in s.membership.members),
        "Members whose pages are misses for now.",
    ),
    Gauge(
        "ring_share_ratio",
        lambda s: sum(member.ring_share for member in s.membership.members if member.is_self),
        "Part of all digests that this node owns first.",
    ),
    Gauge(
        "draining",
        lambda s: s.drain.state != "no",
        "Whether this node drains, or has left after it.",
    ),
    Gauge("drain_pages", "drain.pages", "Pages held when the drain began."),
    Gauge("drain_handed_pages", "drain.handed_pages", "Pages that peers have taken."),
    Counter(
        "adopted_pages", "handover.adopted", "Pages taken over from nodes that drain or are full."
    ),
    Counter("adopted_bytes", "handover.adopted_bytes", "Bytes of them."),
    Counter("adopt_refused_pages", "handover.adopt_refused", "Pages not taken over."),
    Counter(
        "replicated_pages",
        "handover.replicated",
        "Pages copied from other nodes because workers here read them often.",
    ),
    Counter("replicated_bytes", "handover.replicated_bytes", "Bytes of them."),
    Counter(
        "replicate_refused_pages",
        "handover.replicate_refused",
        "Pages read often from other nodes that were not copied.",
    ),
    Counter(
        "pushed_pages",
        "push.pages",
        "Pages that another node took as soon as they were set (write_policy).",
    ),
    Counter("pushed_bytes", "push.bytes", "Bytes of them."),
    Counter("push_kept_pages", "push.kept", "Pages that no node took when they were set."),
    Counter(
        "spilled_pages",
        "spill.pages",
        "Pages that went to another node before this one evicted them.",
    ),
    Counter("spilled_bytes", "spill.bytes", "Bytes that other nodes took for that."),
    Counter(
        "spill_duplicate_pages",
        "spill.duplicates",
        "Pages about to be evicted that another node had already.",
    ),
    Counter(
        "spill_refused_pages",
        "spill.refused",
        "Pages about to be evicted that a node did not take.",
    ),
)
_PEER = (Gauge("peer_suspect", "suspect", "Whether a peer's pages are misses for now."),)
_STATES = ("alive", "leaving")


def families(status: Status) -> Iterator[Metric]:
    members = status.membership.members
    states = Tally(member.state for member in members)
    yield gauge(
        "members",
        "Nodes in the view, this one among them, by state.",
        ["state"],
        {state: states[state] for state in _STATES},
    )
    others = [member for member in members if not member.is_self]
    yield from labelled(by_peer(others, lambda member: member.node_id), "peer", _PEER)
    answers = Tally("yes" if master.answers else "no" for master in status.membership.masters)
    yield gauge(
        "masters",
        "Masters of the membership, by whether they answer.",
        ["answers"],
        {word: answers[word] for word in ("yes", "no")},
    )
    found = Tally(finding.code for finding in status.health)
    yield gauge(
        "health_sentences",
        "Sentences of `peercachectl status`, by the code of their kind (docs/health.md).",
        ["severity", "code"],
        {(kind.severity, kind.code): found[kind.code] for kind in KINDS.values()},
    )
    yield from singles(status, _SINGLES)
