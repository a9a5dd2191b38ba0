"""The metrics port reserves connections for exactly the health routes that exist."""

import asyncio
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any, cast

from peercached.web.health import health_routes
from peercached.web.message import Response
from peercached.web.server import PROBES


def test_reserved_probes_are_exactly_the_health_routes() -> None:
    assert set(health_routes(cast(Any, None))) == PROBES


def test_a_node_is_ready_once_it_serves_and_does_not_drain() -> None:
    def readyz(starting: bool, drain: str, stopping: bool = False) -> Response:
        now = {"node": {"starting": starting, "stopping": stopping}, "drain": {"state": drain}}
        source = cast(Any, SimpleNamespace(status=lambda: now))
        answer: Response = asyncio.run(cast(Any, health_routes(source)["/readyz"])(None))
        return answer

    assert readyz(starting=False, drain="no").status is HTTPStatus.OK
    for starting, drain in ((True, "no"), (False, "running")):
        assert readyz(starting, drain).status is HTTPStatus.SERVICE_UNAVAILABLE
    assert readyz(False, "no", stopping=True).status is HTTPStatus.SERVICE_UNAVAILABLE
