"""A node's summary of itself, and how receivers handle malformed or numerous summaries."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest

from peercached.admin.status import Status
from peercached.membership import Member, NodeAddress
from peercached.overview import overview
from peercached.overview.overview import Overview, _report
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


def overview_of(nodes: int, asked: list[str]) -> Overview:
    """The overview at a node that is no master. `asked`: methods called at the master."""
    reports = [
        pb.NodeReport(node_id=f"n{i}", incarnation=i + 1, summary=f'{{"pool_keys": {i}}}')
        for i in range(nodes)
    ]
    members = [
        {"node_id": f"n{i}", "incarnation": i + 1, "host": "h", "state": "alive",
         "is_self": False, "suspect": False, "ring_share": 0.5}
        for i in range(nodes)
    ]  # fmt: skip

    async def call(method: str, *_: Any, **__: Any) -> pb.OverviewReply:
        asked.append(method)
        await asyncio.sleep(0)
        return pb.OverviewReply(reports=reports)

    master = Member(NodeAddress("n0", 1, "10.0.0.1", 1, 2))
    placement: Any = SimpleNamespace(
        own=SimpleNamespace(address=NodeAddress("me", 9, "10.0.0.9", 1, 2)),
        view=SimpleNamespace(members=[master], counter=3),
    )
    peers: Any = SimpleNamespace(link=lambda _: SimpleNamespace(call_within=call))
    membership: Any = SimpleNamespace(members=lambda: members)
    departures: Any = SimpleNamespace(document=lambda: [])
    return Overview(placement, peers, None, membership, departures, 1)  # type: ignore[arg-type]


async def test_web_readers_share_one_call_to_the_master(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    found = overview_of(2, asked)
    first, second = await asyncio.gather(found.json_for_web(), found.json_for_web())
    third = await found.json_for_web()
    assert first is second is third
    assert asked == ["Overview"]
    document = json.loads(first)
    assert (document["gathered_by"], document["view_number"]) == ("n0", 3)
    assert [node["summary"]["pool_keys"] for node in document["nodes"]] == [0, 1]
    monkeypatch.setattr(overview, "FRESH_S", 0.0)
    assert await found.json_for_web() is not first
    assert len(asked) == 2


async def test_the_loop_runs_on_while_many_summaries_are_read() -> None:
    making = asyncio.ensure_future(overview_of(100, []).json_for_web())
    turns = 0
    while not making.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 200
    assert len(json.loads(await making)["nodes"]) == 100
