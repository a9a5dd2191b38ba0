"""The metrics port reserves connections for exactly the health routes that exist."""

from peercached.web.health import health_routes
from peercached.web.server import PROBES


def test_reserved_probes_are_exactly_the_health_routes() -> None:
    assert set(health_routes(dict)) == PROBES
