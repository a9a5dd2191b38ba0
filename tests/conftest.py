"""For all tests. tests/ is on the import path: `harness` is what all kinds of tests may share."""

import os

import pytest
from harness import clock, stalls

# Several workers of pytest-xdist look for free ports at once. Each has a range of its own, which
# the demos that it starts inherit.
_PORTS = range(20_000, 32_000)

if worker := os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw"):
    workers = int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    room = len(_PORTS) // workers
    first = _PORTS[room * (int(worker) % workers)]
    os.environ["DEMO_PORTS"] = f"{first}-{first + room - 1}"

# Of a single test, where it has no limit of its own: what pyproject.toml says, at our pace.
if clock.PACE > 1:
    os.environ.setdefault("PYTEST_TIMEOUT", f"{clock.seconds(120):.0f}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    stalls.run_again(items)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    stalls.watch()
