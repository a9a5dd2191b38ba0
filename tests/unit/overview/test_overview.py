"""A node's summary of itself, and how receivers handle malformed summaries."""

from typing import Any

import pytest

from peercached.admin.status import Status
from peercached.overview.overview import _report
from peercached.overview.summary import HEALTH_MAX, Summary, summary_of
from peercached.proto import peer_pb2 as pb


def of(document: dict[str, Any]) -> Summary:
    return summary_of(Status.model_validate(document))


SAID = [{"severity": "info", "sentence": f"fine {i}", "remedy": ""} for i in range(9)]


def test_a_summary_has_the_numbers_of_the_status_document() -> None:
    summary = of(
        {
            "node": {"version": "1", "uptime_s": 2.5},
            "pool": {"capacity_bytes": 100, "used_bytes": 40, "keys": 3},
            "operations": {
                "get": {"ok": 7, "absent": 2, "stale": 0},
                "set": {"ok": 5},
                "bytes_got": 70,
            },
            "demand": {"asked": 9, "found": {"pool": 4, "peer": 3}, "evicted": {"2x": 1}},
            "workers": [{}, {}],
        }
    )
    assert (summary.pool_used_bytes, summary.workers, summary.set_pages) == (40, 2, 5)
    assert (summary.asked, summary.found) == (9, {"pool": 4, "peer": 3})
    assert summary.evicted == {"2x": 1}
    assert not summary.disk_enabled


def test_the_worst_sentences_are_kept_and_the_rest_counted() -> None:
    worst = {"severity": "error", "sentence": "x" * 5000, "remedy": "y"}
    summary = of({"health": [*SAID, worst]})
    assert summary.health[0].severity == "error"
    assert len(summary.health[0].sentence) < 1000
    assert (len(summary.health), summary.health_more) == (HEALTH_MAX, 10 - HEALTH_MAX)


def test_an_empty_document_of_another_version_makes_an_empty_summary() -> None:
    assert of({}).pool_keys == 0
    assert Summary.model_validate_json('{"of_tomorrow": 1}') == Summary()


def test_a_report_is_checked_before_it_is_believed() -> None:
    with pytest.raises(ValueError, match="makes no sense"):
        _report(pb.NodeReport(node_id="a", summary='{"workers": "many"}'), 0.0)
    silent = _report(pb.NodeReport(node_id="a", incarnation=5, problem="gone"), 9.0)
    assert (silent.summary, silent.problem) == (None, "gone")
