"""Through SGLang's controllers and their threads: one node backs up, another prefetches."""

import json
from pathlib import Path
from typing import Any

import pages
import pytest
from controller_node import Shape, extra_config

from peercache_client import notes

SHAPE = Shape(tokens=4096)  # the host pool must hold more than a batch of 128 pages


@pytest.mark.parametrize("hybrid", [True, False])
@pytest.mark.parametrize("interface_v1", [1, 0])
def test_one_node_prefetches_pages_another_backed_up(
    make_node: Any, hybrid: bool, interface_v1: int
) -> None:
    name = f"controller {hybrid} {interface_v1}"
    options: dict[str, Any] = {"model": name, "hybrid": hybrid, "interface_v1": interface_v1}
    one, other = make_node(0, SHAPE, **options), make_node(1, SHAPE, **options)
    tokens = pages.tokens(name, 200 * 16)  # two batches
    source = pages.alloc(one.pool, 200)
    written = pages.fill(one.pool, source, name)

    assert one.backup(tokens, source).completed_tokens == len(tokens)
    operation = other.prefetch(tokens + pages.tokens("beyond", 32))
    assert operation.completed_tokens == len(tokens)
    assert pages.read(other.pool, operation.host_indices) == written


def test_page_and_flat_interfaces_use_separate_keys(make_node: Any) -> None:
    """A flat page has the bytes of all pieces in another order, so the forms must not mix."""
    pieces = make_node(0, SHAPE, model="forms")
    flat = make_node(1, SHAPE, model="forms", interface_v1=0)
    tokens = pages.tokens("forms", 64)
    source = pages.alloc(pieces.pool, 4)
    pages.fill(pieces.pool, source, "forms")
    assert pieces.backup(tokens, source).completed_tokens == 64
    assert flat.prefetch(tokens).completed_tokens == 0


def test_prefixes_that_sglang_passes_are_the_parents_of_chains(make_node: Any) -> None:
    from sglang.srt.mem_cache.hicache_storage import HiCacheStorageExtraInfo

    node = make_node(0, SHAPE, model="parents", hicache_storage_pass_prefix_keys=True)
    hashes = pages.hashes("parents", 8)
    source = pages.alloc(node.pool, 8)
    pages.fill(node.pool, source, "parents")
    assert all(node.backend.batch_set_v1(hashes[:4], source[:64]))
    more = HiCacheStorageExtraInfo(prefix_keys=hashes[:4])
    assert node.backend.batch_exists(hashes[4:], more) == 0
    assert all(node.backend.batch_set_v1(hashes[4:], source[64:], more))
    assert node.backend.batch_exists(hashes) == 8


def test_config_file_works_with_a_warning(
    make_node: Any, nodes: Any, tmp_path: Path, caplog: Any, monkeypatch: Any
) -> None:
    """SGLang looks for the allocator in the text of the option, not in the file that it names."""
    monkeypatch.setenv("SGLANG_HICACHE_HOST_PARALLEL_ALLOC_THREADS", "1")  # private memory
    config = tmp_path / "peercache.json"
    config.write_text(json.dumps(extra_config(nodes[0].socket_path)))
    node = make_node(0, SHAPE, model="file", extra_text=f"@{config}")
    notes.flush()
    assert "as JSON text, not as @file" in caplog.text
    source = pages.alloc(node.pool, 4)
    written = pages.fill(node.pool, source, "file")
    tokens = pages.tokens("file", 64)
    assert node.backup(tokens, source).completed_tokens == 64
    operation = node.prefetch(tokens)
    assert pages.read(node.pool, operation.host_indices) == written
