"""The directory: other nodes' records here, ours at others, and lookups."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterator

from prometheus_client import Metric

from peercached.admin.status import Status
from peercached.metrics.bounded import by_peer
from peercached.metrics.table import Counter, Gauge, counter, gauge, labelled, singles

_STATES = ("connecting", "scan", "silent", "live")

_SINGLES = (
    Gauge("directory_entries", "shard.entries", "Records of other nodes on this node."),
    Gauge(
        "directory_dead_entries",
        "shard.dead_entries",
        "Records of nodes that left, not yet deleted.",
    ),
    Gauge("directory_bytes", "shard.bytes", "Memory of these records."),
    Gauge("directory_capacity", "shard.capacity_entries", "Records that fit on this node."),
    Counter("directory_lookups", "shard.lookups", "Digests looked up in these records."),
    Counter("directory_lookup_hits", "shard.hits", "Digests found in these records."),
    Gauge("copied_nodes", "copies.holders", "Nodes with records here that answer lookups."),
    Counter(
        "copies_begun", "copies.begun", "Times that this node began to read all records of a node."
    ),
    Counter(
        "copies_without_room",
        "copies.no_room",
        "Times that a node's records did not fit.",
    ),
    Counter(
        "lookup_keys_in_copies",
        "operations.keys_in_copies",
        "Pages of other nodes found in records here.",
    ),
    Counter("lookup_frames", "operations.lookup_frames", "Questions to owners on data channels."),
    Counter(
        "lookup_frames_answered",
        "operations.lookups_answered",
        "Questions of other nodes answered on data channels.",
    ),
    Counter(
        "lookups_fell_through",
        "operations.lookups_passed_on",
        "Lookups that had to ask all owners.",
    ),
    Counter(
        "publish_frames",
        "operations.publish_frames",
        "Batches of records sent to owners on data channels.",
    ),
    Counter(
        "publish_frames_answered",
        "operations.publishes_answered",
        "Batches of other nodes' records taken on data channels.",
    ),
    Gauge(
        "copies_only_owned",
        "copies.only_owned",
        "1 while the node stores only the records that it owns: those of all nodes do not fit.",
    ),
    Counter(
        "unpublished",
        "operations.unpublished",
        "Set batches answered before every owner had their records. These follow.",
    ),
)
_FOLLOWER = (
    Gauge(
        "follower_behind",
        "behind",
        "Changes of this node's records that the peer lacks.",
    ),
)


def families(status: Status) -> Iterator[Metric]:
    yield from singles(status, _SINGLES)
    effects = ("added", "changed", "withdrawn", "old", "full", "bad")
    yield counter(
        "directory_updates",
        "Changes of other nodes' records, by effect.",
        ["effect"],
        {effect: getattr(status.shard, effect) for effect in effects},
    )
    followers = status.followers
    states = Tally(follower.state for follower in followers)
    yield gauge(
        "followers",
        "Members, by the state of their copy of this node's records.",
        ["state"],
        {state: states[state] for state in _STATES},
    )
    yield from labelled(by_peer(followers, lambda one: one.node_id), "peer", _FOLLOWER)
