"""For probes: `/healthz`, whether the event loop runs; `/readyz`, whether this node serves workers
and accepts sets."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from peercached.web.message import Request, Response, text
from peercached.web.server import Handler


def health_routes(source: Any) -> dict[str, Handler]:
    async def healthz(_: Request) -> Response:
        return text("ok")

    async def readyz(_: Request) -> Response:
        now = source.status()
        if now["node"]["starting"]:
            return text("it starts", HTTPStatus.SERVICE_UNAVAILABLE)
        if now["node"]["stopping"]:
            return text("it stops", HTTPStatus.SERVICE_UNAVAILABLE)
        drain = now["drain"]["state"]
        if drain == "no":
            return text("ok")
        return text(f"it drains: {drain}", HTTPStatus.SERVICE_UNAVAILABLE)

    return {"/healthz": healthz, "/readyz": readyz}
