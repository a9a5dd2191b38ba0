"""Probes have a lane of their own at the metrics port: those that there are."""

from peercached.web.health import health_routes
from peercached.web.server import PROBES


def test_every_probe_and_nothing_else_is_answered_when_there_are_too_many_connections() -> None:
    assert set(health_routes(dict)) == PROBES
