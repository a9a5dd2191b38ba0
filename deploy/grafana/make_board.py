"""Makes deploy/grafana/peercached.json: `python deploy/grafana/make_board.py`.

A panel is a title, a unit, its queries and a kind; the rest of Grafana's document is the same for
all. The first row has single numbers.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

BOARD = Path(__file__).with_name("peercached.json")
_WHERE = 'job=~"$job", instance=~"$instance"'
_COLUMNS = 3
_WIDTH, _HEIGHT = 24 // _COLUMNS, 7

Query = tuple[str, str]  # expression with WHERE for the chosen nodes, legend


def _quantiles(metric: str, by: str = "") -> list[Query]:
    label = f"{{{{{by}}}}} " if by else ""
    grouped = f"le, {by}" if by else "le"
    return [
        (
            f"histogram_quantile({q}, sum by ({grouped}) "
            f"(rate({metric}_bucket{{WHERE}}[$__rate_interval])))",
            f"{label}p{q * 100:g}",
        )
        for q in (0.5, 0.99)
    ]


def _rate(metric: str, by: str, legend: str = "") -> list[Query]:
    return [
        (f"sum by ({by}) (rate({metric}{{WHERE}}[$__rate_interval]))", legend or f"{{{{{by}}}}}")
    ]


ROWS: list[tuple[str, list[tuple[str, str, list[Query]]]]] = [
    (
        "Does it help?",
        [
            (
                "Hit ratio",
                "percentunit",
                [
                    (
                        "sum(rate(peercached_found_keys_total{WHERE}[$__rate_interval])) / "
                        "sum(rate(peercached_asked_keys_total{WHERE}[$__rate_interval]))",
                        "all chosen nodes",
                    ),
                    ("instance:peercached_hit_ratio:rate5m{WHERE}", "{{instance}}"),
                    (
                        "(sum by (pool) "
                        "(rate(peercached_evicted_keys_total{WHERE}[$__rate_interval])) + "
                        "on () group_left () "
                        "sum(rate(peercached_found_keys_total{WHERE}[$__rate_interval]))) / "
                        "on () group_left () "
                        "sum(rate(peercached_asked_keys_total{WHERE}[$__rate_interval]))",
                        "{{pool}} times the pool",
                    ),
                ],
            ),
            (
                "Tokens found (tokens/s)",
                "ops",
                _rate("peercached_found_tokens_total", "instance"),
            ),
            ("Keys found by tier (keys/s)", "ops", _rate("peercached_found_keys_total", "tier")),
            (
                "Hit ratio by namespace",
                "percentunit",
                [
                    (
                        "sum by (namespace_id) "
                        "(rate(peercached_namespace_found_keys_total{WHERE}[$__rate_interval])) / "
                        "sum by (namespace_id) "
                        "(rate(peercached_namespace_asked_keys_total{WHERE}[$__rate_interval]))",
                        "{{namespace_id}}",
                    )
                ],
            ),
            ("Pages not delivered (pages/s)", "ops", _rate("peercached_misses_total", "reason")),
            ("Bytes by operation", "Bps", _rate("peercached_bytes_total", "operation")),
            ("Requests", "reqps", _rate("peercached_requests_total", "operation")),
        ],
    ),
    (
        "How fast?",
        [
            ("Get by source", "s", _quantiles("peercached_get_seconds", "source")),
            ("Exists", "s", _quantiles("peercached_exists_seconds")),
            ("Set", "s", _quantiles("peercached_set_seconds")),
            ("Read by peer", "s", _quantiles("peercached_peer_read_seconds", "peer")),
            ("Read by rail", "s", _quantiles("peercached_rail_read_seconds", "rail")),
        ],
    ),
    (
        "Pool and disk",
        [
            (
                "Pool in use",
                "percentunit",
                [
                    (
                        "peercached_pool_used_bytes{WHERE} / peercached_pool_capacity_bytes{WHERE}",
                        "{{instance}}",
                    )
                ],
            ),
            ("Pages held", "short", [("peercached_pool_keys{WHERE}", "{{instance}}")]),
            (
                "Evictions (pages/s)",
                "ops",
                [
                    (
                        "rate(peercached_pool_evictions_total{WHERE}[$__rate_interval])",
                        "{{instance}}",
                    )
                ],
            ),
            (
                "Page lifetime in the pool",
                "s",
                [("instance:peercached_pool_page_lifetime_seconds:rate5m{WHERE}", "{{instance}}")],
            ),
            (
                "Pool by slot size",
                "short",
                [
                    (
                        "sum by (slot_bytes) (peercached_pool_class_slots{WHERE})",
                        "{{slot_bytes}} (slots)",
                    )
                ],
            ),
            (
                "Disk in use",
                "percentunit",
                [
                    (
                        "peercached_disk_used_bytes{WHERE} / peercached_disk_size_bytes{WHERE}",
                        "{{instance}}",
                    )
                ],
            ),
            (
                "Disk traffic",
                "Bps",
                [
                    (
                        "sum(rate(peercached_disk_written_bytes_total{WHERE}[$__rate_interval]))",
                        "written",
                    ),
                    (
                        "sum(rate(peercached_disk_read_bytes_total{WHERE}[$__rate_interval]))",
                        "read",
                    ),
                ],
            ),
            (
                "Disk queue",
                "bytes",
                [("peercached_disk_queued_bytes{WHERE}", "{{instance}}")],
            ),
            (
                "Disk skips and errors (per second)",
                "ops",
                [
                    *_rate("peercached_disk_skipped_pages_total", "reason", "skipped: {{reason}}"),
                    *_rate("peercached_disk_errors_total", "kind", "error: {{kind}}"),
                ],
            ),
        ],
    ),
    (
        "Cluster",
        [
            (
                "Members that each node sees",
                "short",
                [("sum by (instance) (peercached_members{WHERE})", "{{instance}}")],
            ),
            ("Suspects", "short", [("peercached_suspects{WHERE}", "{{instance}}")]),
            (
                "Errors and warnings in status",
                "short",
                [
                    (
                        'peercached_health_sentences{WHERE, severity=~"error|warning"} > 0',
                        "{{instance}} {{severity}}: {{code}}",
                    )
                ],
            ),
            (
                "Directory in use",
                "percentunit",
                [
                    (
                        "peercached_directory_entries{WHERE}"
                        " / peercached_directory_capacity{WHERE}",
                        "{{instance}}",
                    )
                ],
            ),
            (
                "Members without all our records",
                "short",
                [
                    (
                        'sum by (instance, state) (peercached_followers{WHERE, state!="live"}) > 0',
                        "{{instance}} {{state}}",
                    )
                ],
            ),
            (
                "Sets before all owners knew (batches/s)",
                "ops",
                _rate("peercached_unpublished_total", "instance"),
            ),
            (
                "Lookups (per second)",
                "ops",
                [
                    *_rate("peercached_lookup_frames_total", "instance", "owners asked"),
                    *_rate("peercached_lookups_fell_through_total", "instance", "asked all"),
                ],
            ),
            (
                "Times without room for a node's records (per second)",
                "ops",
                _rate("peercached_copies_without_room_total", "instance"),
            ),
        ],
    ),
    (
        "Object store",
        [
            (
                "Pages in the store",
                "short",
                [("max(peercached_cold_keys{WHERE})", "known to a node")],
            ),
            (
                "Read and written",
                "Bps",
                [
                    *_rate("peercached_cold_read_bytes_total", "instance", "{{instance}} read"),
                    *_rate(
                        "peercached_cold_written_bytes_total", "instance", "{{instance}} written"
                    ),
                ],
            ),
            (
                "Requests to the store",
                "reqps",
                [
                    *_rate("peercached_cold_requests_total", "kind"),
                    *_rate("peercached_cold_errors_total", "kind", "failed: {{kind}}"),
                ],
            ),
            (
                "Pages read in vain (pages/s)",
                "ops",
                [
                    *_rate("peercached_cold_void_pages_total", "instance", "{{instance}} removed"),
                    *_rate("peercached_cold_late_pages_total", "instance", "{{instance}} late"),
                    *_rate(
                        "peercached_cold_corrupt_pages_total", "instance", "{{instance}} corrupt"
                    ),
                    *_rate(
                        "peercached_cold_vanished_pages_total", "instance", "{{instance}} vanished"
                    ),
                ],
            ),
        ],
    ),
    (
        "Network and workers",
        [
            ("Read by peer", "Bps", _rate("peercached_peer_bytes_total", "peer")),
            ("Read by rail", "Bps", _rate("peercached_rail_bytes_total", "rail")),
            (
                "Errors by peer and rail (per second)",
                "ops",
                [
                    *_rate("peercached_peer_errors_total", "peer", "peer {{peer}}"),
                    *_rate("peercached_rail_errors_total", "rail", "rail {{rail}}"),
                ],
            ),
            (
                "Channels",
                "short",
                [
                    ("sum by (instance) (peercached_peer_channels{WHERE})", "{{instance}} out"),
                    (
                        "sum by (instance) (peercached_tcp_served_channels{WHERE})"
                        " + (sum by (instance) (peercached_rail_responders{WHERE})"
                        " or 0 * sum by (instance) (peercached_tcp_served_channels{WHERE}))",
                        "{{instance}} in",
                    ),
                ],
            ),
            ("Workers", "short", [("peercached_clients{WHERE}", "{{instance}}")]),
            ("Copied by GPU", "Bps", _rate("peercached_gpu_copied_bytes_total", "gpu")),
            (
                "Processor time of the daemon",
                "percentunit",
                [("rate(process_cpu_seconds_total{WHERE}[$__rate_interval])", "{{instance}}")],
            ),
        ],
    ),
]


def _all(metric: str) -> str:
    return f"sum(rate({metric}{{WHERE}}[$__rate_interval]))"


# Title, unit and expression of single numbers.
STATS: list[tuple[str, str, str]] = [
    (
        "Hit ratio",
        "percentunit",
        f"{_all('peercached_found_keys_total')} / {_all('peercached_asked_keys_total')}",
    ),
    ("Tokens found", "short", _all("peercached_found_tokens_total")),
    ("Nodes that answer", "short", "sum(up{WHERE})"),
    ("Members", "short", "max(sum by (instance) (peercached_members{WHERE}))"),
    ("Errors in status", "short", 'sum(peercached_health_sentences{WHERE, severity="error"})'),
    (
        "Pool in use",
        "percentunit",
        "sum(peercached_pool_used_bytes{WHERE}) / sum(peercached_pool_capacity_bytes{WHERE})",
    ),
]
_STAT_WIDTH, _STAT_HEIGHT = 24 // len(STATS), 4


def _stat(number: int, title: str, unit: str, expression: str, place: int) -> dict[str, Any]:
    where = {"x": place * _STAT_WIDTH, "y": 0, "w": _STAT_WIDTH, "h": _STAT_HEIGHT}
    panel = _panel(number, title, unit, [(expression, "")], where)
    panel["type"] = "stat"
    panel["options"] = {
        "reduceOptions": {"calcs": ["lastNotNull"]},
        "graphMode": "area",
        "colorMode": "none",
    }
    return panel


def _get_heatmap(number: int, where: dict[str, int]) -> dict[str, Any]:
    query = "sum by (le) (increase(peercached_get_seconds_bucket{WHERE}[$__rate_interval]))"
    panel = _panel(number, "Get, all sources", "s", [(query, "{{le}}")], where)
    panel["type"] = "heatmap"
    panel["targets"][0]["format"] = "heatmap"
    panel["options"] = {
        "calculate": False,
        "yAxis": {"unit": "s"},
        "color": {"mode": "scheme", "scheme": "Oranges", "steps": 64},
        "cellGap": 1,
    }
    return panel


def _findings_table(number: int, where: dict[str, int]) -> dict[str, Any]:
    query = "sum by (instance, severity, code) (peercached_health_sentences{WHERE}) > 0"
    panel = _panel(number, "What status says", "short", [(query, "")], where)
    panel["type"] = "table"
    panel["targets"][0] |= {"format": "table", "instant": True}
    panel["options"] = {"showHeader": True, "sortBy": [{"displayName": "severity"}]}
    panel["transformations"] = [
        {"id": "organize", "options": {"excludeByName": {"Time": True, "Value": True}}}
    ]
    return panel


def _annotations() -> list[dict[str, Any]]:
    """Marks in all charts: what happened to the nodes."""
    return [
        {
            "name": name,
            "datasource": _SOURCE,
            "enable": True,
            "iconColor": colour,
            "expr": expression.replace("WHERE", _WHERE),
            "step": "30s",
            "titleFormat": name,
            "textFormat": "{{instance}}",
        }
        for name, colour, expression in (
            # A large pool keeps the port closed for minutes.
            (
                "restart",
                "red",
                "changes(process_start_time_seconds{WHERE}[15m]) > 0"
                " unless changes(process_start_time_seconds{WHERE}[15m] offset 1m) > 0",
            ),
            ("new view", "blue", "changes(peercached_view_number{WHERE}[1m]) > 0"),
            ("drain", "orange", "peercached_draining{WHERE} > 0"),
        )
    ]


def board() -> dict[str, Any]:
    panels = [_stat(place + 1, *stat, place) for place, stat in enumerate(STATS)]
    top = _STAT_HEIGHT
    for heading, charts in ROWS:
        panels.append(
            {
                "id": len(panels) + 1,
                "type": "row",
                "title": heading,
                "collapsed": False,
                "gridPos": {"x": 0, "y": top, "w": 24, "h": 1},
                "panels": [],
            }
        )
        top += 1
        for place, (title, unit, queries) in enumerate(charts):
            where = {
                "x": place % _COLUMNS * _WIDTH,
                "y": top + place // _COLUMNS * _HEIGHT,
                "w": _WIDTH,
                "h": _HEIGHT,
            }
            panels.append(_panel(len(panels) + 1, title, unit, queries, where))
        top += -(-len(charts) // _COLUMNS) * _HEIGHT
        if extra := _EXTRA.get(heading):
            where = {"x": 0, "y": top, "w": 24, "h": _HEIGHT}
            panels.append(extra(len(panels) + 1, where))
            top += _HEIGHT
    return {
        "title": "peercached",
        "uid": "peercached",
        "tags": ["peercached"],
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "schemaVersion": 38,
        "version": 1,
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "",
        "annotations": {"list": _annotations()},
        "templating": {"list": _variables()},
        "panels": panels,
    }


_SOURCE = {"type": "prometheus", "uid": "${source}"}
# A wide panel below the charts of a row.
_EXTRA: dict[str, Callable[[int, dict[str, int]], dict[str, Any]]] = {
    "How fast?": _get_heatmap,
    "Cluster": _findings_table,
}


def _panel(
    number: int, title: str, unit: str, queries: list[Query], where: dict[str, int]
) -> dict[str, Any]:
    defaults: dict[str, Any] = {"unit": unit, "min": 0}
    if unit == "percentunit" and "Processor" not in title:
        defaults["max"] = 1
    return {
        "id": number,
        "type": "timeseries",
        "title": title,
        "datasource": _SOURCE,
        "gridPos": where,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "targets": [
            {
                "refId": chr(ord("A") + place),
                "datasource": _SOURCE,
                "expr": expression.replace("WHERE", _WHERE),
                "legendFormat": legend,
            }
            for place, (expression, legend) in enumerate(queries)
        ],
    }


def _variables() -> list[dict[str, Any]]:
    source = {
        "name": "source",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
        "current": {},
    }
    chosen = [
        {
            "name": name,
            "type": "query",
            "datasource": _SOURCE,
            "query": {"query": query, "refId": name},
            "definition": query,
            "refresh": 2,
            "includeAll": True,
            "multi": True,
            "current": {"text": "All", "value": "$__all"},
            "sort": 1,
        }
        for name, query in (
            ("job", "label_values(peercached_node_info, job)"),
            ("instance", 'label_values(peercached_node_info{job=~"$job"}, instance)'),
        )
    ]
    return [source, *chosen]


def text() -> str:
    return json.dumps(board(), indent=1) + "\n"


if __name__ == "__main__":
    BOARD.write_text(text())
