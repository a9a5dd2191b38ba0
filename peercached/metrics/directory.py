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
    Gauge("directory_entries", "shard.entries", "Records of other nodes here."),
    Gauge(
        "directory_dead_entries",
        "shard.dead_entries",
        "Void records of nodes that left, not yet swept.",
    ),
    Gauge("directory_bytes", "shard.bytes", "Their memory."),
    Gauge("directory_capacity", "shard.capacity_entries", "Records that it may hold."),
    Counter("directory_lookups", "shard.lookups", "Digests looked up among them."),
    Counter("directory_lookup_hits", "shard.hits", "Digests that it knew."),
    Gauge("copied_nodes", "copies.holders", "Nodes whose records answer here."),
    Counter("copies_begun", "copies.begun", "Times that all records of a node were read."),
    Counter(
        "copies_without_room",
        "copies.no_room",
        "Times that a node's records had no room here.",
    ),
    Counter(
        "lookup_keys_in_copies",
        "operations.keys_in_copies",
        "Pages of other nodes that were found among their records here.",
    ),
    Counter("lookup_frames", "operations.lookup_frames", "Owners asked on data channels."),
    Counter(
        "lookup_frames_answered",
        "operations.lookups_answered",
        "Questions of other nodes answered on data channels.",
    ),
    Counter(
        "lookups_fell_through",
        "operations.lookups_passed_on",
        "Searches that had to ask all owners.",
    ),
    Counter("publish_frames", "operations.publish_frames", "Owners told on data channels."),
    Counter(
        "publish_frames_answered",
        "operations.publishes_answered",
        "Records of other nodes taken on data channels, in batches.",
    ),
    Counter(
        "unpublished",
        "operations.unpublished",
        "Batches that not every owner had when set answered; their records follow.",
    ),
)
_FOLLOWER = (Gauge("follower_behind", "behind", "Changes of our records that it lacks."),)


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
        "Members, by what they have of our records.",
        ["state"],
        {state: states[state] for state in _STATES},
    )
    yield from labelled(by_peer(followers, lambda one: one.node_id), "peer", _FOLLOWER)
