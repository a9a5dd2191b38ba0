"""On any node: builds the cluster document from a master's reports."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from peercached.directory.placement import Placement
from peercached.history.departures import Departures
from peercached.membership import Member
from peercached.membership.order import masters_of
from peercached.node_status import NodeStatus
from peercached.overview.gatherer import ANSWER_S, Gatherer, Report
from peercached.overview.summary import Summary, own_summary
from peercached.peer.membership.status import MembershipStatus
from peercached.peer.rpc.client import Peers
from peercached.peer.rpc.failures import CallFailed, Refused, TimedOut
from peercached.proto import peer_pb2 as pb

SCHEMA_VERSION = 1
# A master needs longer if members do not answer it.
MASTER_ANSWER_S = 3 * ANSWER_S


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

    def stop(self) -> None:
        self.gatherer.stop()

    def summary_json(self) -> str:
        """This node's own summary, for a master that collects."""
        return own_summary(self._status).model_dump_json()

    async def here(self) -> pb.OverviewReply:
        """This node's collected reports, for another node."""
        return pb.OverviewReply(reports=map(_message, await self.gatherer.reports()))

    async def document(self) -> dict[str, Any]:
        """`GET /api/v1/cluster` (docs/operations.md)."""
        by, reports, problem = await self._gathered()
        of = {(report.node_id, f"{report.incarnation:016x}"): report for report in reports}
        now = time.monotonic()
        own = self._placement.own.address
        masters = {member.node_id for member in self._masters()}
        nodes = []
        departed = self._departures.document()
        for member in self._membership.members():
            incarnation = f"{member['incarnation']:016x}"
            report = of.get((member["node_id"], incarnation))
            nodes.append(
                {
                    "node_id": member["node_id"],
                    "incarnation": incarnation,
                    "host": member["host"],
                    "state": _state(member, report),
                    "is_self": member["is_self"],
                    "is_master": member["node_id"] in masters,
                    "suspect": member["suspect"],
                    "ring_share": member["ring_share"],
                    "problem": report.problem if report else f"{by or 'no master'} knows nothing",
                    "age_s": round(now - report.at, 3) if report and report.summary else None,
                    "summary": report.summary.model_dump() if report and report.summary else None,
                }
            )
        return {
            "schema_version": SCHEMA_VERSION,
            "node_id": own.node_id,
            "gathered_by": by,
            "problem": problem,
            "view_number": self._placement.view.counter,
            "nodes": nodes,
            "departed": [{**one, "incarnation": f"{one['incarnation']:016x}"} for one in departed],
        }

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
                reports = [_report(message, now) for message in reply.reports]
                return master.node_id, reports, "; ".join(problems)
            except TimedOut:
                problems.append(f"master {master.node_id} does not answer")
            except Refused as error:
                problems.append(f"master {master.node_id}: {error.details}")
            except (CallFailed, ValueError) as error:
                problems.append(f"master {master.node_id}: {error}")
        alone = Report(own.node_id, own.incarnation, own_summary(self._status), time.monotonic())
        return "", [alone], "; ".join(problems) or "there is no master"


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
