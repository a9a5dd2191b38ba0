"""The metrics port reserves connections for exactly the health routes that exist."""

import asyncio
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any, cast

from peercached.peer.handover.intake import Intake
from peercached.phase import Phase
from peercached.web.health import health_routes
from peercached.web.server import PROBES


def test_reserved_probes_are_exactly_the_health_routes() -> None:
    assert set(health_routes(cast(Any, None), cast(Any, None))) == PROBES


def test_a_node_is_ready_while_it_serves_and_takes_sets() -> None:
    taking: list[bool] = []
    engine: Any = SimpleNamespace(set_taking=taking.append)
    cluster: Any = SimpleNamespace(waits="")
    catch_up: Any = SimpleNamespace(is_held_out=False)
    drain: Any = SimpleNamespace(takes_sets=True, progress=SimpleNamespace(state="drained"))
    phase, intake = Phase(), Intake(engine, cluster, catch_up, drain)
    handler = cast(Any, health_routes(phase, intake)["/readyz"])

    def readyz() -> tuple[HTTPStatus, bytes]:
        answer = asyncio.run(handler(None))
        intake.tend(0.0)
        return answer.status, answer.body

    assert readyz() == (HTTPStatus.SERVICE_UNAVAILABLE, b"it starts\n")
    phase.starting = False
    assert readyz() == (HTTPStatus.OK, b"ok\n")
    phase.stops_since = 1.0
    assert readyz() == (HTTPStatus.SERVICE_UNAVAILABLE, b"it stops\n")
    assert taking == [True] * 3
    phase.stops_since = None
    for part, field, value, why in (
        (cluster, "waits", "it was found silent", b"it was found silent"),
        (catch_up, "is_held_out", True, b"missed removals"),
        (drain, "takes_sets", False, b"it drains: drained"),
    ):
        before = getattr(part, field)
        setattr(part, field, value)
        status, said = readyz()
        assert status is HTTPStatus.SERVICE_UNAVAILABLE
        assert why in said
        assert not taking[-1]
        setattr(part, field, before)
    assert readyz()[0] is HTTPStatus.OK
