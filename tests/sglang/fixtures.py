"""The fixtures of conftest.py. Importing this makes SGLang, if it is there, run on a CPU."""

import importlib.util
from array import array
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from harness.fixtures import FAST


def _there_is_sglang() -> bool:
    # This folder itself looks like an empty package of that name.
    found = importlib.util.find_spec("sglang")
    return found is not None and found.origin is not None


collect_ignore_glob: list[str] = []
if _there_is_sglang():
    import on_cpu

    on_cpu.install()
else:
    collect_ignore_glob.append("test_*.py")


@pytest.fixture(scope="session", autouse=True)
def compiled_page_hash() -> None:
    """SGLang compiles its page hash at first use, for up to a minute: too long for a test."""
    from sglang.srt.mem_cache.utils import get_hash_str

    get_hash_str(array("q", [1]), None, page_size=1)


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    """Two daemons that know each other."""
    from harness.cluster import Cluster

    with Cluster(2, options=FAST) as cluster:
        cluster.start()
        yield cluster


@pytest.fixture
def make_node(nodes: Any) -> Iterator[Any]:
    """`make_node(0, shape, ...)`: a ControllerNode beside daemon 0, detached after the test."""
    from controller_node import ControllerNode

    with ExitStack() as stack:

        def make(place: int, *arguments: Any, **options: Any) -> Any:
            socket_path = nodes[place].socket_path
            return stack.enter_context(ControllerNode(socket_path, *arguments, **options))

        yield make
