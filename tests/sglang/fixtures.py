"""The fixtures of conftest.py. Importing this makes SGLang, if it is there, run on a CPU."""

import importlib.util
from array import array
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Final

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
    if importlib.util.find_spec("sglang.test.kits.unified_radix_cache") is None:
        collect_ignore_glob.append("test_sglang_kit.py")  # new in sglang 0.5.23, too
else:
    collect_ignore_glob.append("test_*.py")


# Tests with one of these words in their ids need sglang 0.5.23. New there are head groups, DCP,
# long token ids, private host memory, injected faults, and the scheduler that our patch changes.
_NEW_IN_0_5_23: Final = (
    *("page_unified", "test_head_groups.py", "head groups", "dcp_size", "1099511627776"),
    *("test_unshareable_pool", "test_config_file_works", "test_sglang_s_own_faults"),
    "a page of a layout that begins",
    "test_layout_patch.py",
)


def pytest_collection_modifyitems(items: list[Any]) -> None:
    if not _there_is_sglang():
        return
    from sglang.srt.mem_cache.hicache_storage import HiCacheStorageConfig

    if "dcp_size" in HiCacheStorageConfig.__dataclass_fields__:
        return
    for item in items:
        if any(word in item.nodeid for word in _NEW_IN_0_5_23):
            item.add_marker(pytest.mark.skip("needs sglang 0.5.23"))


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
