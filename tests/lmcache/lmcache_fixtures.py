"""The fixtures of conftest.py."""

import importlib.util
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from harness.fixtures import FAST, cluster_maker
from harness.ipc_stand_in import IpcStandIn

# Before LMCache is imported: it reports its use to its makers.
os.environ["LMCACHE_TRACK_USAGE"] = "false"


def _there_is_lmcache() -> bool:
    # This folder itself looks like an empty package of that name.
    found = importlib.util.find_spec("lmcache")
    return found is not None and found.origin is not None


collect_ignore_glob: list[str] = []
if not _there_is_lmcache():
    collect_ignore_glob.append("test_*.py")


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


@pytest.fixture
def make_node() -> Iterator[Any]:
    """`make_node(socket_path, ...)`: a StorageNode, closed after the test."""
    from storage_node import StorageNode

    with ExitStack() as stack:

        def make(socket_path: Path, **options: Any) -> Any:
            node = StorageNode(socket_path, **options)
            stack.callback(node.close)
            return node

        yield make
