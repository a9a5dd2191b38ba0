"""Huge pages and NUMA binding for SGLang's host pools."""

import os
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pages
import pytest
from controller_node import Shape
from sglang.srt.mem_cache.pool_host.common import ShmHostTensorAllocator

from peercache_client import memory, notes, sglang_plugin

RESERVED = Path("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages")


@pytest.fixture
def plugged(monkeypatch: Any) -> None:
    """Installs the hook like SGLang's hook registry, and removes it after the test."""
    original = ShmHostTensorAllocator.allocate

    def hooked(*arguments: Any, **named: Any) -> Any:
        return sglang_plugin.allocate(original, *arguments, **named)

    monkeypatch.setattr(ShmHostTensorAllocator, "allocate", hooked)


@pytest.fixture
def huge_pages() -> Iterator[None]:
    """Reserves some huge pages, if this test may."""
    before = RESERVED.read_text() if RESERVED.exists() else ""
    if not before or not os.access(RESERVED, os.W_OK):
        pytest.skip("huge pages cannot be reserved here")
    RESERVED.write_text(str(int(before) + 8))
    try:
        if int(RESERVED.read_text()) < int(before) + 8:
            pytest.skip("there is no room for huge pages here")
        yield
    finally:
        RESERVED.write_text(before)


def moves_pages(make_node: Any, model: str, **extra: Any) -> Any:
    nodes = [make_node(i, Shape(), model=model, **extra) for i in (0, 1)]
    hashes = pages.hashes(model, 4)
    source = pages.alloc(nodes[0].pool, 4)
    written = pages.fill(nodes[0].pool, source, model)
    assert all(nodes[0].backend.batch_set_v1(hashes, source))
    target = pages.alloc(nodes[1].pool, 4)
    assert all(nodes[1].backend.batch_get_v1(hashes, target))
    assert pages.read(nodes[1].pool, target) == written
    assert nodes[0].backend._forms["kv"].shared
    return nodes[0].pool


def page_bytes_at(address: int) -> int:
    """The page size of the mapping, as the kernel reports it."""
    found = 0
    here = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first = line.split(maxsplit=1)[0]
        if "-" in first and not first.endswith(":"):
            start, end = (int(part, 16) for part in first.split("-"))
            here = start <= address < end
        elif here and first == "KernelPageSize:":
            found = int(line.split()[1]) << 10
    return found


def test_a_pool_in_huge_pages_is_shared(plugged: None, huge_pages: None, make_node: Any) -> None:
    pool = moves_pages(make_node, "huge", huge_pages="2MiB")
    assert page_bytes_at(pool.kv_buffer.data_ptr()) == 2 << 20


def test_a_pool_on_its_numa_node_is_shared(plugged: None, make_node: Any, caplog: Any) -> None:
    pool = moves_pages(make_node, "numa", numa_node=0)
    extent = memory.find_extent(pool.kv_buffer.data_ptr(), memory.read_mappings())
    notes.flush()
    if "bytes of host memory with" in caplog.text:
        pytest.skip("this machine cannot bind memory to a node")
    policies = Path("/proc/self/numa_maps").read_text().splitlines()
    (policy,) = [line for line in policies if int(line.split()[0], 16) == extent.address]
    assert "bind:0" in policy


def test_unavailable_numa_node_is_logged_and_ordinary_memory_used(
    plugged: None, make_node: Any, caplog: Any
) -> None:
    moves_pages(make_node, "no node", numa_node=1000)
    notes.flush()
    assert "numa_node=1000 (" in caplog.text
    assert "ordinary memory instead" in caplog.text


def test_plugin_without_options_moves_pages(plugged: None, make_node: Any) -> None:
    moves_pages(make_node, "no wish")


def test_invalid_huge_page_size_fails_the_start(plugged: None, make_node: Any) -> None:
    with pytest.raises(ValueError, match="2MiB or 1GiB"):
        make_node(0, Shape(), huge_pages="4MiB")


def test_sglang_finds_the_plugin() -> None:
    (found,) = [
        entry for entry in entry_points(group="sglang.srt.plugins") if entry.name == "peercache"
    ]
    assert found.load() is sglang_plugin.install


def test_plugin_registers_its_allocation_hook() -> None:
    from sglang.srt.plugins.hook_registry import HookRegistry

    sglang_plugin.install()
    hooks = HookRegistry._hooks.pop(sglang_plugin._TARGET)
    assert [hook for _, hook, _ in hooks] == [sglang_plugin.allocate]
