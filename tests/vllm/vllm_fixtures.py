"""The fixtures of conftest.py."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from harness.engine_fixtures import ignored_without, nodes, one_daemon, stand_in

__all__ = ["collect_ignore_glob", "make_node", "nodes", "one_daemon", "stand_in"]

collect_ignore_glob = ignored_without("vllm")


@pytest.fixture
def make_node() -> Iterator[Any]:
    """`make_node(socket_path, ...)`: an OffloadNode, shut down after the test."""
    from offload_node import OffloadNode

    with ExitStack() as stack:

        def make(socket_path: Path, **options: Any) -> Any:
            node = OffloadNode(socket_path, **options)
            stack.callback(node.close)
            return node

        yield make
