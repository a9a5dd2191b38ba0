"""Servers never meet if their bytes mean different things, and equal servers always do."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from lmcache.v1.distributed.api import ObjectKey
from storage_node import CHUNK_BYTES, MODEL, StorageNode, keys_of, layout

from peercache_client.engine_settings import EngineSettings
from peercache_client.lmcache.identity import make_model_namespace

KEYS = keys_of("one prompt", 4)


@pytest.fixture(scope="module", autouse=True)
def first(nodes: Any) -> Iterator[StorageNode]:
    node = StorageNode(nodes[0].socket_path)
    node.prefill(KEYS)
    yield node
    node.close()


@pytest.mark.parametrize(
    "changes",
    [
        {"model_name": "other/model"},
        {"kv_rank": ObjectKey.ComputeKVRank(2, 0, 2, 0)},
        {"kv_rank": ObjectKey.ComputeKVRank(2, 1, 2, 1)},
        {"object_group_id": 1},
        {"cache_salt": "acme"},
    ],
    ids=str,
)
def test_keys_that_differ_never_meet(
    nodes: Any, make_node: Any, first: StorageNode, changes: dict[str, Any]
) -> None:
    assert first.found(keys_of("one prompt", 4, **changes)) == 0


@pytest.mark.parametrize(
    "other",
    [
        layout(torch.float16),
        layout(torch.uint8, (2, 4, 16, 128)),
        layout(torch.uint8, (CHUNK_BYTES,)),
        layout(shape=(2, 4, 32, 32)),
        layout(shape=(2, 2, 16, 128)),
        layout(shape=(1, 4, 16, 64)),
    ],
    ids=str,
)
def test_layouts_that_differ_never_meet(first: StorageNode, other: Any) -> None:
    """Such as another dtype, chunk size or number of layers, or bytes of a serializer. The lookup
    finds the pages, because their layout is the last that this server used. Their load does not."""
    first.prefill(keys_of("used last", 1))
    before = first.counted().get("load", {})
    assert first.found(KEYS, other) == 0
    assert first.counted()["load"] == {**before, "absent": before.get("absent", 0) + len(KEYS)}


@pytest.mark.parametrize(
    "params",
    [{"model_revision": "2"}, {"namespace": "staging"}, {"tenant": "acme"}],
    ids=str,
)
def test_servers_that_are_kept_apart_never_meet(
    nodes: Any, make_node: Any, params: dict[str, Any]
) -> None:
    assert make_node(nodes[0].socket_path, params=params).found(KEYS) == 0


@pytest.mark.parametrize("options", [{}, {"shared_memory": False}, {"l1_bytes": 4 << 20}], ids=str)
def test_servers_with_the_same_bytes_meet(nodes: Any, make_node: Any, options: Any) -> None:
    assert make_node(nodes[0].socket_path, **options).found(KEYS) == len(KEYS)


def test_operators_can_read_the_namespace() -> None:
    settings = EngineSettings(tenant="a/b", model_revision="2")
    assert make_model_namespace(settings, MODEL) == "lmcache1/test%2Fmodel/2//a%2Fb"
