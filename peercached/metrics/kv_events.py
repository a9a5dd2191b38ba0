"""Events of pages for routers. All are 0 if `kv_events_port` is 0."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import Metric

from peercached.admin.status import Status
from peercached.metrics.table import Counter, Gauge, singles

_SINGLES = (
    Gauge("kv_events_subscribers", "kv_events.subscribers", "Connected subscribers of events."),
    Gauge(
        "kv_events_pages",
        "kv_events.told",
        "Pages of all nodes that subscribers know of. A page on two nodes counts twice.",
    ),
    Counter("kv_events", "kv_events.events", "Events told, one for each hash."),
    Counter("kv_events_batches", "kv_events.batches", "Batches sent to subscribers."),
    Counter("kv_events_bytes", "kv_events.bytes", "Bytes of these batches, sent to each of them."),
    Counter(
        "kv_events_by_digest",
        "kv_events.by_digest",
        "Pages told by their digest, because nobody gave their hash.",
    ),
    Counter("kv_events_replays", "kv_events.replays", "Answered requests for missed events."),
    Counter(
        "kv_events_snapshots",
        "kv_events.snapshots",
        "Snapshots made for replays that began before the kept events.",
    ),
    Counter(
        "kv_events_replays_refused",
        "kv_events.replays_refused",
        "Refused requests for missed events: malformed, of the future, or too many.",
    ),
    Counter(
        "kv_events_replays_stalled",
        "kv_events.replays_stalled",
        "Replays that ended because the subscriber took nothing.",
    ),
    Counter(
        "kv_events_handshakes_refused",
        "kv_events.handshakes_refused",
        "Connections to the ports for events that had no key of the cluster.",
    ),
)


def families(status: Status) -> Iterator[Metric]:
    yield from singles(status, _SINGLES)
