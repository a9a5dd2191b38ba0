"""Fixtures of the rooms that have an engine in an environment of its own, such as tests/vllm."""

import importlib.util
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from harness.fixtures import FAST, cluster_maker
from harness.ipc_stand_in import IpcStandIn


def ignored_without(package: str) -> list[str]:
    """A conftest's `collect_ignore_glob`: no tests where there is no such package."""
    # The room's folder itself looks like an empty package of that name.
    found = importlib.util.find_spec(package)
    return [] if found is not None and found.origin is not None else ["test_*.py"]


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    """Two daemons that know each other."""
    with ExitStack() as stack:
        yield cluster_maker(stack, FAST, start_s=30.0)(2)


@pytest.fixture
def one_daemon() -> Iterator[Any]:
    """A daemon that this test may harm; not started."""
    with ExitStack() as stack:
        yield cluster_maker(stack, FAST, start_s=30.0)(1, start=False)


@pytest.fixture
def stand_in(tmp_path: Path) -> Iterator[IpcStandIn]:
    """A daemon's socket without the daemon, which can hang in the middle of a write."""
    with IpcStandIn(tmp_path / "d.sock") as daemon:
        yield daemon
