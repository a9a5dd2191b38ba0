"""Maps paths to handlers."""

from __future__ import annotations

from typing import Any

from peercached.admin.status import Status
from peercached.data_plane.latencies import Latencies
from peercached.metrics.all import families
from peercached.metrics.exposition import CONTENT_TYPE, exposition
from peercached.peer.handover.intake import Intake
from peercached.phase import Phase
from peercached.web.health import health_routes
from peercached.web.message import Request, Response
from peercached.web.server import Handler


def routes(source: Any, latencies: Latencies, phase: Phase, intake: Intake) -> dict[str, Handler]:
    async def metrics(_: Request) -> Response:
        return Response(
            await exposition(
                families(Status.model_validate(dict(source.status())), latencies.now())
            ),
            CONTENT_TYPE,
        )

    return {"/metrics": metrics, **health_routes(phase, intake)}
