"""The fixtures of conftest.py. Importing this makes SGLang, if it is there, run on a CPU."""

import importlib.util
from array import array
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Final

import pytest
from harness.fixtures import FAST
from harness.waiting import CALL_S


def _there_is_sglang() -> bool:
    # This folder itself looks like an empty package of that name.
    found = importlib.util.find_spec("sglang")
    return found is not None and found.origin is not None


collect_ignore_glob: list[str] = []
if _there_is_sglang():
    import on_cpu

    on_cpu.install()
    if importlib.util.find_spec("sglang.test.kits.unified_radix_cache") is None:
        collect_ignore_glob += ["test_sglang_kit.py", "test_linker*.py"]  # new in 0.5.23, too
else:
    collect_ignore_glob.append("test_*.py")


# Tests with one of these words in their ids need this release. New in 0.5.23 are head groups, DCP,
# long token ids, private host memory, injected faults, and the scheduler that our patch changes.
# New in 0.5.22 are groups of blocks, Mamba's extra states, and a poll that tells a failed restore.
_NEW_IN: Final = {
    "0.5.23": (
        *("page_unified", "test_head_groups.py", "head groups", "dcp_size", "1099511627776"),
        *("test_unshareable_pool", "test_config_file_works", "test_sglang_s_own_faults"),
        "a page of a layout that begins",
        "test_layout_patch.py",
        "a linker that",
        "a linker whose",
        "linker]",
        "test_llm.py::test_linker",
    ),
    "0.5.22": ("test_block_groups", "mamba with extra states", "test_pages_lost_between_probe"),
}


def pytest_collection_modifyitems(items: list[Any]) -> None:
    if not _there_is_sglang():
        return
    from sglang.srt.mem_cache.hicache_storage import HiCacheStorageConfig, PoolHitPolicy

    there = {
        "0.5.23": "dcp_size" in HiCacheStorageConfig.__dataclass_fields__,
        "0.5.22": hasattr(PoolHitPolicy, "BLOCK_GROUPS"),
    }
    for release, words in _NEW_IN.items():
        for item in items:
            if not there[release] and any(word in item.nodeid for word in words):
                item.add_marker(pytest.mark.skip(f"needs sglang {release}"))


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


@pytest.fixture
def patient_lookups(monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon on a busy machine may answer later than SGLang's scheduler waits."""
    monkeypatch.setattr("peercache_client.sglang.linker._LOOKUP_TIMEOUT_S", CALL_S)


@pytest.fixture
def make_linker(nodes: Any, patient_lookups: None) -> Iterator[Any]:
    """`make_linker(0, shape, ...)`: a LinkerNode beside daemon 0, closed after the test."""
    from linker_node import LinkerNode

    with ExitStack() as stack:

        def make(place: int, shape: Any, **options: Any) -> Any:
            options.setdefault("layout", getattr(shape, "layout", "page_first"))
            socket_path = options.pop("socket_path", nodes[place].socket_path)
            return stack.enter_context(LinkerNode(socket_path, shape, **options))

        yield make
