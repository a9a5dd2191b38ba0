"""On any node: builds the cluster document from a master's reports."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import ValidationError

from peercached.directory.placement import Placement
from peercached.history.departures import Departures
from peercached.membership import Member
from peercached.membership.order import masters_of
from peercached.node_status import NodeStatus
from peercached.overview.gatherer import ANSWER_S, FRESH_S, Gatherer, Report
from peercached.overview.summary import Summary, own_summary
from peercached.peer.membership.status import MembershipStatus
from peercached.peer.rpc.client import Peers
from peercached.peer.rpc.failures import CallFailed, Refused, TimedOut
from peercached.proto import peer_pb2 as pb

SCHEMA_VERSION = 1
# A master needs longer if members do not answer it.
MASTER_ANSWER_S = 3 * ANSWER_S

_T = TypeVar("_T")


@dataclass(eq=False)
class Overview:
    """Runs on the event loop. The masters are those of our view, even if etcd keeps the
    membership."""

    _placement: Placement
    _peers: Peers
    _status: NodeStatus
    _membership: MembershipStatus
    _departures: Departures
    _max_masters: int

    def __post_init__(self) -> None:
        self.gatherer = Gatherer(self._placement, self._peers, self._status)
        self._making: asyncio.Task[bytes] | None = None  # the last document for web readers
        self._begun_at = 0.0

    def stop(self) -> None:
        self.gatherer.stop()
        if self._making is not None:
            self._making.cancel()

    def summary_json(self) -> str:
        """This node's own summary, for a master that collects."""
        return own_summary(self._status).model_dump_json()

    async def here(self) -> pb.OverviewReply:
        """This node's collected reports, for another node."""
        reports = await self.gatherer.reports()
        return pb.OverviewReply(reports=[_message(each) async for each in _one_by_one(reports)])

    async def json_for_web(self) -> bytes:
        """`GET /api/v1/cluster` (docs/operations.md). Strangers share the document that is being
        made, or one that was begun within FRESH_S. So a flood of them costs a master one call a
        second."""
        now = time.monotonic()
        making = self._making
        if making is None or (making.done() and now - self._begun_at >= FRESH_S):
            making = asyncio.ensure_future(self._document())
            # Retrieve the error: asyncio complains if all who waited for it are gone.
            making.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._making, self._begun_at = making, now
        return await asyncio.shield(making)

    async def _document(self) -> bytes:
        by, reports, problem = await self._gathered()
        of = {(report.node_id, report.incarnation): report for report in reports}
        now = time.monotonic()
        masters = {member.node_id for member in self._masters()}
        nothing = f"{by or 'no master'} knows nothing"
        nodes = []
        async for member in _one_by_one(self._membership.members()):
            node_id = member["node_id"]
            report = of.get((node_id, member["incarnation"]))
            nodes.append(
                _json(
                    {
                        "node_id": node_id,
                        "incarnation": f"{member['incarnation']:016x}",
                        "host": member["host"],
                        "state": _state(member, report),
                        "is_self": member["is_self"],
                        "is_master": node_id in masters,
                        "suspect": member["suspect"],
                        "ring_share": member["ring_share"],
                        "problem": report.problem if report else nothing,
                        "age_s": round(now - report.at, 3) if report and report.summary else None,
                        "summary": report.summary.model_dump()
                        if report and report.summary
                        else None,
                    }
                )
            )
        departed = self._departures.document()
        rest = {
            "schema_version": SCHEMA_VERSION,
            "node_id": self._placement.own.address.node_id,
            "gathered_by": by,
            "problem": problem,
            "view_number": self._placement.view.counter,
            "departed": [{**one, "incarnation": f"{one['incarnation']:016x}"} for one in departed],
        }
        return f'{_json(rest)[:-1]},"nodes":[{",".join(nodes)}]}}'.encode()

    def _masters(self) -> tuple[Member, ...]:
        return masters_of(self._placement.view.members, self._max_masters)

    async def _gathered(self) -> tuple[str, list[Report], str]:
        """(node that collected, its reports, problems of the masters tried before it)."""
        own = self._placement.own.address
        problems: list[str] = []
        for master in self._masters():
            if master.node_id == own.node_id:
                return own.node_id, await self.gatherer.reports(), "; ".join(problems)
            try:
                link = self._peers.link(master.address.endpoint)
                reply = await link.call_within(
                    "Overview", pb.OverviewRequest(), MASTER_ANSWER_S, expect=master.address
                )
                now = time.monotonic()
                reports = [_report(each, now) async for each in _one_by_one(reply.reports)]
                return master.node_id, reports, "; ".join(problems)
            except TimedOut:
                problems.append(f"master {master.node_id} does not answer")
            except Refused as error:
                problems.append(f"master {master.node_id}: {error.details}")
            except (CallFailed, ValueError) as error:
                problems.append(f"master {master.node_id}: {error}")
        alone = Report(own.node_id, own.incarnation, own_summary(self._status), time.monotonic())
        return "", [alone], "; ".join(problems) or "there is no master"


async def _one_by_one(parts: Iterable[_T]) -> AsyncIterator[_T]:
    """Lets the loop run after each part: with thousands of nodes they take long."""
    for part in parts:
        yield part
        await asyncio.sleep(0)


def _json(document: Any) -> str:
    return json.dumps(document, separators=(",", ":"))


def _state(member: dict[str, Any], report: Report | None) -> str:
    """The displayed state: "alive", "leaving", or "silent" if it did not answer the last call."""
    if report is None or report.problem:
        return "silent"
    return str(member["state"])


def _message(report: Report) -> pb.NodeReport:
    return pb.NodeReport(
        node_id=report.node_id,
        incarnation=report.incarnation,
        summary=report.summary.model_dump_json() if report.summary else "",
        age_ms=max(0, int((time.monotonic() - report.at) * 1000)) if report.summary else 0,
        problem=report.problem,
    )


def _report(message: pb.NodeReport, now: float) -> Report:
    """Parses a report. ValueError if it is invalid."""
    summary = None
    if message.summary:
        try:
            summary = Summary.model_validate_json(message.summary)
        except ValidationError as error:
            raise ValueError(f"a report that makes no sense: {error}") from error
    return Report(
        message.node_id,
        message.incarnation,
        summary,
        now - message.age_ms / 1000,
        message.problem,
    )
