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

This page lists the metrics of a node in Prometheus' text format: `GET http://HOST:31997/metrics`
(keys `metrics_enabled`, `metrics_host`, `metrics_port`). For scraping, rules and the board, see
[operations.md](operations.md#monitoring).

Names in `_total` are counters, names in `_info` infos. Latencies are histograms, all others gauges.
Counters and histograms begin at 0 with the daemon, those of a peer with the peer. Labels are in
parentheses. `peer` has at most {PEERS_MAX} values, the first by name. `slot_bytes` has at most
{CLASSES_MAX}, those with the most memory. All others are summed up under `{OTHERS}`. The
{NAMESPACES_MAX} namespaces with the most memory have series of their own, by id.
`peercachectl namespaces` lists all, with their names.

- **Value of the cache**: `peercached_found_keys_total` / `peercached_asked_keys_total`. The results
  of `get` do not show it, because engines get only keys that `exists` has found. Keys given to
  `exists` are asked; those before the first missing one are found. With `contains` each key counts
  by itself. If a worker never calls `exists`, its gets count.
- **Larger pool**: `peercached_evicted_keys_total` counts further keys that a larger pool of this
  node would have kept. It does not know pages evicted by other nodes.
- **Pages of a get**: each counts in `peercached_pages_total`. With the outcome `ok` it also counts
  in `peercached_hits_total`, otherwise in `peercached_misses_total`.
- **Reasons of misses**: `absent`: no node has the page. `stale`: it was gone twice between lookup
  and READ, or its holder has no room to load it from disk. `deadline`: it was too late. `suspect`:
  its holder is suspect. `error`: its holder or the disk failed. Others, such as `bad_key`, are
  wrong requests.
- **Pages of the pool**: each counts in `peercached_pool_commits_total` when it comes. It counts
  once in `peercached_pool_evictions_total`, `peercached_pool_removals_total` or
  `peercached_pool_given_total` when it leaves. These three and `peercached_pool_keys` add up to all
  pages that came, plus those of a warm restart. The sum is exact half a second after the last move.
- **Latencies**: those of get, set and exists are times in the engine. A get counts under the
  farthest place of its pages, or `nowhere` if all were misses. `peercached_client_seconds` adds the
  socket, waits for a processor and the worker's own work. Clients report a call with a later
  request, so the last one is missing. Older clients report none.
"""


def document() -> str:
    """The whole page."""
    parts = [_HEAD]
    for title, part in PARTS.items():
        parts += [f"\n## {title}\n", *_table(part.families(Status()))]
    parts += ["\n## Latencies\n", *_table(latency.families(()))]
    return "".join(parts)


def _table(families: Iterable[Metric]) -> list[str]:
    lines = ["\n| metric | meaning |\n|---|---|\n"]
    for family in families:
        if family.name.startswith("process_"):
            continue  # these come from prometheus_client, which documents them
        by = ", ".join(f"`{label}`" for label in labels(family))
        name = f"`{exposed_name(family)}`{f' ({by})' if by else ''}"
        lines.append(f"| {name} | {family.documentation} |\n")
    return lines


def exposed_name(family: Metric) -> str:
    """The name shown on the page. prometheus_client stores it without its ending."""
    return family.name + {"counter": "_total", "info": "_info"}.get(family.type, "")


def labels(family: Metric) -> list[str]:
    """The names of its labels."""
    return list(getattr(family, "_labelnames", ()))


if __name__ == "__main__":
    Path((*sys.argv, "docs/metrics.md")[1]).write_text(document())
