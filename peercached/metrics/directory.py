"""The directory: our shard, the streams of our records, and lookups."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterator

from prometheus_client import Metric

from peercached.admin.status import Status
from peercached.metrics.bounded import by_peer
from peercached.metrics.single import Single, counter, gauge, singles

_STATES = ("connecting", "resync", "live")

_SINGLES = (
    Single(
        "gauge", "directory_entries", lambda s: s.shard.entries, "Records in this node's shard."
    ),
    Single(
        "gauge",
        "directory_dead_entries",
        lambda s: s.shard.dead_entries,
        "Void records of nodes that left, not yet swept.",
    ),
    Single("gauge", "directory_bytes", lambda s: s.shard.bytes, "Memory of the shard."),
    Single(
        "gauge",
        "directory_capacity",
        lambda s: s.shard.capacity_entries,
        "Records that it may hold.",
    ),
    Single(
        "counter", "directory_lookups", lambda s: s.shard.lookups, "Digests looked up in the shard."
    ),
    Single("counter", "directory_lookup_hits", lambda s: s.shard.hits, "Digests that it knew."),
    Single(
        "gauge", "copied_nodes", lambda s: s.copies.holders, "Nodes whose records are copied here."
    ),
    Single("gauge", "copied_records", lambda s: s.copies.records, "Records of theirs."),
    Single("gauge", "copied_records_bytes", lambda s: s.copies.bytes, "Memory of the copies."),
    Single(
        "counter",
        "copies_begun",
        lambda s: s.copies.begun,
        "Times that a node was copied from its start.",
    ),
    Single(
        "counter",
        "copies_without_room",
        lambda s: s.copies.no_room,
        "Times that a node's records did not fit into directory_copies.",
    ),
    Single(
        "counter",
        "lookup_keys_in_copies",
        lambda s: s.operations.keys_in_copies,
        "Pages of other nodes that were found in a copy.",
    ),
    Single(
        "counter",
        "lookup_frames",
        lambda s: s.operations.lookup_frames,
        "Owners asked on data channels.",
    ),
    Single(
        "counter",
        "lookup_frames_answered",
        lambda s: s.operations.lookups_answered,
        "Questions of other nodes answered on data channels.",
    ),
    Single(
        "counter",
        "lookups",
        lambda s: s.operations.control.lookups,
        "Searches that owners did not settle on data channels, in batches.",
    ),
    Single(
        "counter", "lookup_rpcs", lambda s: s.operations.control.lookup_rpcs, "Calls made for them."
    ),
    Single(
        "counter",
        "lookups_overdue",
        lambda s: s.operations.control.lookups_overdue,
        "Owners that took too long, so that others were asked.",
    ),
    Single(
        "counter",
        "lookups_fell_through",
        lambda s: s.operations.control.lookups_fell_through,
        "Groups of digests that needed other owners.",
    ),
    Single(
        "counter",
        "publish_frames",
        lambda s: s.operations.publish_frames,
        "Owners told on data channels.",
    ),
    Single(
        "counter",
        "publish_frames_answered",
        lambda s: s.operations.publishes_answered,
        "Records of other nodes taken on data channels, in batches.",
    ),
    Single(
        "counter",
        "publish_batches",
        lambda s: s.operations.control.publish_batches,
        "Batches of records of new pages that owners did not take on data channels.",
    ),
    Single(
        "counter",
        "publish_timeouts",
        lambda s: s.operations.control.publish_timeouts,
        "Batches that some owner did not acknowledge within publish_timeout_ms.",
    ),
    Single(
        "counter",
        "publish_unreached",
        lambda s: s.operations.control.publish_unreached,
        "Batches that no owner had when set answered; their records follow.",
    ),
    Single(
        "counter",
        "stream_gaps",
        lambda s: s.operations.control.stream_gaps,
        "Gaps in the streams of other holders to this owner.",
    ),
)


def families(status: Status) -> Iterator[Metric]:
    yield from singles(status, _SINGLES)
    updates = counter("directory_updates", "Records sent to the shard, by effect.", ["effect"])
    shard = status.shard
    for effect, number in (
        ("added", shard.added),
        ("changed", shard.changed),
        ("withdrawn", shard.withdrawn),
        ("old", shard.old),
        ("full", shard.full),
        ("bad", shard.bad),
    ):
        updates.add_metric([effect], number)
    yield updates

    streams = status.streams
    states = Tally(stream.state for stream in streams)
    by_state = gauge("streams", "Streams of our records to other owners, by state.", ["state"])
    for state in _STATES:
        by_state.add_metric([state], states[state])
    yield by_state
    queued = gauge("stream_queued_batches", "Batches an owner has not acknowledged.", ["peer"])
    resyncs = counter("stream_resyncs", "Times that our records there were compared.", ["peer"])
    refused = counter("stream_refused_records", "Records it had no room for.", ["peer"])
    sums = by_peer(
        streams,
        lambda stream: stream.owner,
        lambda stream: stream.queued,
        lambda stream: stream.resyncs,
        lambda stream: stream.refused_full,
    )
    for peer, numbers in sums.items():
        queued.add_metric([peer], numbers[0])
        resyncs.add_metric([peer], numbers[1])
        refused.add_metric([peer], numbers[2])
    yield from (queued, resyncs, refused)
    lag = gauge("stream_lag_seconds", "Age of the oldest batch that some owner has not taken.")
    lag.add_metric([], max((stream.lag_s for stream in streams), default=0.0))
    yield lag
