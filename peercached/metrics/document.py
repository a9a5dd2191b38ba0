"""Writes docs/metrics.md: `python -m peercached.metrics.document [FILE]`."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from prometheus_client import Metric

from peercached.admin.status import Status
from peercached.metrics import latency
from peercached.metrics.all import PARTS
from peercached.metrics.bounded import CLASSES_MAX, NAMESPACES_MAX, OTHERS, PEERS_MAX

_HEAD = f"""\
# Metrics

<!-- Made by `python -m peercached.metrics.document` from peercached/metrics/. -->

`GET http://HOST:31997/metrics` (keys `metrics_enabled`, `metrics_host`, `metrics_port`), in
Prometheus' text format. Counters (`_total`) and histograms begin at 0 with the daemon, and those of
a peer with the peer's. [operations.md](operations.md#monitoring) says how to scrape them;
`deploy/prometheus` has rules and `deploy/grafana` a board.

The number of series is bounded. The label `peer` has at most {PEERS_MAX} values, the first by name.
`slot_bytes` has at most {CLASSES_MAX}, those with the most memory. All others are summed up under
`{OTHERS}`. The {NAMESPACES_MAX} namespaces with the most memory have series of their own, by id.
The others have none: `peercachectl namespaces` lists them all, with their names.

A page that a get delivered counts once in `peercached_hits_total`, and once in
`peercached_pages_total` with the outcome `ok`; one that it did not, once in
`peercached_misses_total` with the reason and once in `peercached_pages_total`. Reasons: `absent`
(nobody has it), `stale` (gone between lookup and READ, twice, or its holder has no room to bring it
from its disk), `deadline`, `suspect` (its holder is), `error` (its holder failed, or the disk that
has it gave nothing), and what a worker asked wrongly (`bad_key`, `bad_range`, `length_mismatch`,
...).

The value of the cache is `peercached_found_keys_total` / `peercached_asked_keys_total`. Engines ask
`exists` for the keys of a prompt and then get only those found, so the results of `get` do not show
it. Keys asked for with `exists` count as asked, and those before the first missing one as found.
With `contains` each key counts by itself. A worker that never calls `exists` asks with its gets.
`peercached_evicted_keys_total` counts further keys that this node's pool would have kept if it were
larger (native/pool/evicted_keys.h); pages evicted by other nodes are not in it.

A page that comes into the pool counts in `peercached_pool_commits_total`. When it leaves, it counts
once: in `peercached_pool_evictions_total`, `peercached_pool_removals_total` or
`peercached_pool_given_total`. Half a second after the last move, these three and
`peercached_pool_keys` add up to the pages that came, and those that a warm restart brought back.

A get's latency is counted under the farthest place that one of its pages came from; `nowhere` if
all were misses. `peercached_get_seconds`, `peercached_set_seconds` and `peercached_exists_seconds`
are times in the engine. The way through the socket, a wait for a processor, and the work in the
worker's own process come on top: `peercached_client_seconds` has them. A client tells the time of
each call with a later request, so its last call is missing. A request tells one call at most, and
a worker that lies falsifies only this histogram. Clients of older versions tell nothing.
"""


def document() -> str:
    """The whole page."""
    parts = [_HEAD]
    for title, part in PARTS.items():
        parts += [f"\n## {title}\n", *_table(part.families(Status()))]
    parts += ["\n## Latencies\n", *_table(latency.families(()))]
    return "".join(parts)


def _table(families: Iterable[Metric]) -> list[str]:
    lines = ["\n| metric | kind | labels | meaning |\n|---|---|---|---|\n"]
    for family in families:
        if family.name.startswith("process_"):
            continue  # these come from prometheus_client, which documents them
        lines.append(
            f"| `{exposed_name(family)}` | {family.type} | "
            f"{', '.join(f'`{label}`' for label in labels(family))} | {family.documentation} |\n"
        )
    return lines


def exposed_name(family: Metric) -> str:
    """The name shown on the page. prometheus_client stores it without its ending."""
    return family.name + {"counter": "_total", "info": "_info"}.get(family.type, "")


def labels(family: Metric) -> list[str]:
    """The names of its labels."""
    return list(getattr(family, "_labelnames", ()))


if __name__ == "__main__":
    Path((*sys.argv, "docs/metrics.md")[1]).write_text(document())
