"""On a master: collects every member's summary when a caller asks for it."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace

from pydantic import ValidationError

from peercached.directory.placement import Node, Placement
from peercached.node_status import NodeStatus
from peercached.overview.summary import Summary, own_summary
from peercached.peer.rpc.client import Peers
from peercached.peer.rpc.failures import CallFailed
from peercached.proto import peer_pb2 as pb
from peercached.timeout import within

# An answer is reused for this long.
FRESH_S = 1.0
# A member that takes longer counts as silent. Its previous summary is kept.
ANSWER_S = 1.0
CALLS_AT_ONCE_MAX = 64
SUMMARY_BYTES_MAX = 16 << 10


@dataclass(frozen=True)
class Report:
    """`summary` is the newest one received, or None; `at` is its time (monotonic seconds).
    `problem`: why the last call brought none; empty if it did."""

    node_id: str
    incarnation: int
    summary: Summary | None = None
    at: float = 0.0
    problem: str = ""


class Gatherer:
    """Keeps one report for each member of the view. Runs on the event loop."""

    def __init__(self, placement: Placement, peers: Peers, status: NodeStatus) -> None:
        self._placement = placement
        self._peers = peers
        self._status = status
        self._reports: dict[tuple[str, int], Report] = {}
        self._gathered_at = float("-inf")
        self._gathering: asyncio.Task[None] | None = None
        self._calling = asyncio.Semaphore(CALLS_AT_ONCE_MAX)

    async def reports(self) -> list[Report]:
        """Reports of all members of the view, sorted by node id."""
        if self._gathering is None and time.monotonic() - self._gathered_at >= FRESH_S:
            self._gathering = asyncio.ensure_future(self._gather())
        if self._gathering is not None:
            # Shielded, because other callers wait for it, too.
            await asyncio.shield(self._gathering)
        return sorted(self._reports.values(), key=lambda report: report.node_id)

    def stop(self) -> None:
        if self._gathering is not None:
            self._gathering.cancel()

    async def _gather(self) -> None:
        try:
            nodes = list(self._placement.nodes.values())
            found = await asyncio.gather(*map(self._report, nodes))
            self._reports = {(report.node_id, report.incarnation): report for report in found}
            self._gathered_at = time.monotonic()
        finally:
            self._gathering = None

    async def _report(self, node: Node) -> Report:
        address = node.address
        before = self._reports.get(
            (address.node_id, address.incarnation), Report(address.node_id, address.incarnation)
        )
        if node is self._placement.own:
            return replace(
                before, summary=own_summary(self._status), at=time.monotonic(), problem=""
            )
        async with self._calling:
            try:
                summary = await within(ANSWER_S, self._ask(node))
            except asyncio.TimeoutError:
                return replace(before, problem=f"no answer within {ANSWER_S:g} s")
            except (CallFailed, ValueError) as error:
                return replace(before, problem=str(error)[:300])
        return replace(before, summary=summary, at=time.monotonic(), problem="")

    async def _ask(self, node: Node) -> Summary:
        link = self._peers.link(node.address.endpoint)
        reply: pb.SummaryReply = await link.call(
            "Summary", pb.SummaryRequest(), ANSWER_S, expect=node.address
        )
        if len(reply.json) > SUMMARY_BYTES_MAX:
            raise ValueError(f"a summary of {len(reply.json)} bytes; {SUMMARY_BYTES_MAX} are valid")
        try:
            return Summary.model_validate_json(reply.json)
        except ValidationError as error:
            raise ValueError(f"its summary makes no sense: {error}") from error
