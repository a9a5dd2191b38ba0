"""For probes: `/healthz`, whether the event loop runs; `/readyz`, whether this node serves its
workers and accepts their sets. That says nothing of other nodes: it may have joined no cluster."""

from __future__ import annotations

from http import HTTPStatus

from peercached.peer.handover.intake import Intake
from peercached.phase import Phase
from peercached.web.message import Request, Response, text
from peercached.web.server import Handler


def health_routes(phase: Phase, intake: Intake) -> dict[str, Handler]:
    async def healthz(_: Request) -> Response:
        return text("ok")

    async def readyz(_: Request) -> Response:
        if phase.starting:
            why_not = "it starts"
        elif phase.stops_since is not None:
            why_not = "it stops"
        else:
            why_not = intake.refusal
        return text(why_not, HTTPStatus.SERVICE_UNAVAILABLE) if why_not else text("ok")

    return {"/healthz": healthz, "/readyz": readyz}
