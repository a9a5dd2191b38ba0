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
    Gauge(
        "view_number", "membership.view_number", "Number of the view; 0: this node has joined none."
    ),
    Gauge("is_master", "membership.is_master", "1 if this node is a master."),
    Counter("heartbeats_sent", "membership.heartbeats_sent", "Heartbeats sent to masters."),
    Counter(
        "life_signs",
        "membership.signs_counted",
        "Other messages of members that count as heartbeats.",
    ),
    Gauge(
        "suspects",
        lambda s: sum(member.suspect for member in s.membership.members),
        "Suspect members: their pages are misses.",
    ),
    Gauge(
        "ring_share_ratio",
        lambda s: sum(member.ring_share for member in s.membership.members if member.is_self),
        "Share of all digests that this node owns first.",
    ),
    Gauge(
        "draining",
        lambda s: s.drain.state != "no",
        "1 if this node drains, or has left after a drain.",
    ),
    Gauge("drain_pages", "drain.pages", "Pages held when the drain began."),
    Gauge("drain_handed_pages", "drain.handed_pages", "Pages handed to peers by the drain."),
    Counter("adopted_pages", "handover.adopted", "Pages taken from nodes that drain or are full."),
    Counter("adopted_bytes", "handover.adopted_bytes", "Bytes of these pages."),
    Counter(
        "adopt_refused_pages",
        "handover.adopt_refused",
        "Pages offered by other nodes and not taken.",
    ),
    Counter(
        "replicated_pages",
        "handover.replicated",
        "Pages copied from other nodes because workers here read them often.",
    ),
    Counter("replicated_bytes", "handover.replicated_bytes", "Bytes of these pages."),
    Counter(
        "replicate_refused_pages",
        "handover.replicate_refused",
        "Pages often read from other nodes but not copied.",
    ),
    Counter(
        "pushed_pages",
        "push.pages",
        "Pages that another node took when they were set (`write_policy`).",
    ),
    Counter("pushed_bytes", "push.bytes", "Bytes of these pages."),
    Counter("push_kept_pages", "push.kept", "Pages that no node took when they were set."),
    Counter(
        "spilled_pages",
        "spill.pages",
        "Pages moved to another node before this node evicted them.",
    ),
    Counter("spilled_bytes", "spill.bytes", "Bytes of these pages."),
    Counter(
        "spill_duplicate_pages",
        "spill.duplicates",
        "Pages not moved before eviction because another node had them.",
    ),
    Counter(
        "spill_refused_pages",
        "spill.refused",
        "Pages that another node refused before eviction.",
    ),
)
_PEER = (Gauge("peer_suspect", "suspect", "1 if the peer is suspect: its pages are misses."),)
_STATES = ("alive", "leaving")


def families(status: Status) -> Iterator[Metric]:
    members = status.membership.members
    states = Tally(member.state for member in members)
    yield gauge(
        "members",
        "Nodes in the view, including this one, by state.",
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
        "Findings of `peercachectl status`, by code (docs/health.md).",
        ["severity", "code"],
        {(kind.severity, kind.code): found[kind.code] for kind in KINDS.values()},
    )
    yield from singles(status, _SINGLES)
