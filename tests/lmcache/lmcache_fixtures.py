"""The fixtures of conftest.py."""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from harness.engine_fixtures import ignored_without, nodes, one_daemon, stand_in

__all__ = ["collect_ignore_glob", "make_node", "nodes", "one_daemon", "stand_in"]

# Before LMCache is imported: it reports its use to its makers.
os.environ["LMCACHE_TRACK_USAGE"] = "false"

collect_ignore_glob = ignored_without("lmcache")


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
