"""Maps paths to handlers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from peercached.admin.status import Status
from peercached.metrics.all import families
from peercached.metrics.exposition import CONTENT_TYPE, exposition
from peercached.observe.latency import Latency
from peercached.web.health import health_routes
from peercached.web.message import Request, Response
from peercached.web.server import Handler


def routes(
    status: Callable[[], Mapping[str, Any]], latencies: Callable[[], Iterable[Latency]]
) -> dict[str, Handler]:
    """`status` and `latencies` return the node's current values."""

    async def metrics(_: Request) -> Response:
        return Response(
            await exposition(families(Status.model_validate(dict(status())), latencies())),
            CONTENT_TYPE,
        )

    return {"/metrics": metrics, **health_routes(status)}
