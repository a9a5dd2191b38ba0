"""Hooks for all tests. tests/ is on the import path, so that every test can import `harness`."""

import asyncio
import inspect
import os

import pytest
import uvloop
from harness import clock, stalls
from harness.room import Room

# Python exits with 120 if output that is left in a buffer cannot be written. Users have the buffer.
os.environ.pop("PYTHONUNBUFFERED", None)

# Workers of pytest-xdist look for free ports at the same time. Each has a range of its own, and
# the demos that it starts inherit it.
_PORTS = range(20_000, 32_000)

_WITH_CLUSTERS = ("cluster", "deploy", "gpu")
# The first worker always goes on.
_ROOM = Room() if os.environ.get("PYTEST_XDIST_WORKER", "gw0") != "gw0" else None

if worker := os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw"):
    workers = int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    room = len(_PORTS) // workers
    first = _PORTS[room * (int(worker) % workers)]
    os.environ["BENCH_PORTS"] = f"{first}-{first + room - 1}"

# On a slow machine, this limit of one test replaces the one in pyproject.toml.
if clock.PACE > 1:
    os.environ.setdefault("PYTEST_TIMEOUT", f"{clock.seconds(600):.0f}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    stalls.run_again(items)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if _ROOM and item.path.parent.name in _WITH_CLUSTERS:
        _ROOM.wait()
    stalls.watch()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Runs a test that is a coroutine, for at most 100 s."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {
        name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters
    }
    run = uvloop.run if pyfuncitem.get_closest_marker("uvloop") else asyncio.run
    run(asyncio.wait_for(pyfuncitem.obj(**arguments), clock.seconds(100)))
    return True
