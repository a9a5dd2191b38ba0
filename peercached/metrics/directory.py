"""The directory: our shard, the streams of our records, and lookups."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterator

from prometheus_client import Metric

from peercached.admin.status import Status
from peercached.metrics.bounded import by_peer
from peercached.metrics.table import Counter, Gauge, counter, gauge, labelled, singles

_STATES = ("connecting", "resync", "live")

_SINGLES = (
    Gauge("directory_entries", "shard.entries", "Records in this node's shard."),
    Gauge(
        "directory_dead_entries",
        "shard.dead_entries",
        "Void records of nodes that left, not yet swept.",
    ),
    Gauge("directory_bytes", "shard.bytes", "Memory of the shard."),
    Gauge("directory_capacity", "shard.capacity_entries", "Records that it may hold."),
    Counter("directory_lookups", "shard.lookups", "Digests looked up in the shard."),
    Counter("directory_lookup_hits", "shard.hits", "Digests that it knew."),
    Gauge("copied_nodes", "copies.holders", "Nodes whose records are copied here."),
    Gauge("copied_records", "copies.records", "Records of theirs."),
    Gauge("copied_records_bytes", "copies.bytes", "Memory of the copies."),
    Counter("copies_begun", "copies.begun", "Times that a node was copied from its start."),
    Counter(
        "copies_without_room",
        "copies.no_room",
        "Times that a node's records did not fit into directory_copies.",
    ),
    Counter(
        "lookup_keys_in_copies",
        "operations.keys_in_copies",
        "Pages of other nodes that were found in a copy.",
    ),
    Counter("lookup_frames", "operations.lookup_frames", "Owners asked on data channels."),
    Counter(
        "lookup_frames_answered",
        "operations.lookups_answered",
        "Questions of other nodes answered on data channels.",
    ),
    Counter(
        "lookups",
        "operations.control.lookups",
        "Searches that owners did not settle on data channels, in batches.",
    ),
    Counter("lookup_rpcs", "operations.control.lookup_rpcs", "Calls made for them."),
    Counter(
        "lookups_overdue",
        "operations.control.lookups_overdue",
        "Owners that took too long, so that others were asked.",
    ),
    Counter(
        "lookups_fell_through",
        "operations.control.lookups_fell_through",
        "Groups of digests that needed other owners.",
    ),
    Counter("publish_frames", "operations.publish_frames", "Owners told on data channels."),
    Counter(
        "publish_frames_answered",
        "operations.publishes_answered",
        "Records of other nodes taken on data channels, in batches.",
    ),
    Counter(
        "publish_batches",
        "operations.control.publish_batches",
        "Batches of records of new pages that owners did not take on data channels.",
    ),
    Counter(
        "publish_timeouts",
        "operations.control.publish_timeouts",
        "Batches that some owner did not acknowledge within publish_timeout_ms.",
    ),
    Counter(
        "publish_unreached",
        "operations.control.publish_unreached",
        "Batches that no owner had when set answered; their records follow.",
    ),
    Counter(
        "stream_gaps",
        "operations.control.stream_gaps",
        "Gaps in the streams of other holders to this owner.",
    ),
    Gauge(
        "stream_lag_seconds",
        lambda s: max((stream.lag_s for stream in s.streams), default=0.0),
        "Age of the oldest batch that some owner has not taken.",
    ),
)
_STREAM = (
    Gauge("stream_queued_batches", "queued", "Batches an owner has not acknowledged."),
    Counter("stream_resyncs", "resyncs", "Times that our records there were compared."),
    Counter("stream_refused_records", "refused_full", "Records it had no room for."),
)


def families(status: Status) -> Iterator[Metric]:
    yield from singles(status, _SINGLES)
    effects = ("added", "changed", "withdrawn", "old", "full", "bad")
    yield counter(
        "directory_updates",
        "Records sent to the shard, by effect.",
        ["effect"],
        {effect: getattr(status.shard, effect) for effect in effects},
    )
    streams = status.streams
    states = Tally(stream.state for stream in streams)
    yield gauge(
        "streams",
        "Streams of our records to other owners, by state.",
        ["state"],
        {state: states[state] for state in _STATES},
    )
    yield from labelled(by_peer(streams, lambda stream: stream.owner), "peer", _STREAM)
