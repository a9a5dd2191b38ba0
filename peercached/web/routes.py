"""Which path is answered by whom."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from peercached.metrics.all import families
from peercached.metrics.exposition import CONTENT_TYPE, exposition
from peercached.web.message import Request, Response
from peercached.web.server import Handler


def routes(status: Callable[[], Mapping[str, Any]]) -> dict[str, Handler]:
    """`status`: the node's status document, as it is now."""

    async def metrics(_: Request) -> Response:
        return Response(await exposition(families(status())), CONTENT_TYPE)

    return {"/metrics": metrics}
