"""A page exists only with all its pieces, and one request asks for all of them."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pages
import pytest
from controller_node import Shape
from harness.waiting import eventually
from sglang.srt.mem_cache.hicache_storage import PoolHitPolicy, PoolName, PoolTransfer

SHAPE = Shape()


@pytest.mark.parametrize("piece", [0, 1])
def test_a_page_without_one_of_its_pieces_is_a_miss(make_node: Any, piece: int) -> None:
    name = f"piece {piece}"
    one, other = make_node(0, SHAPE, model=name), make_node(1, SHAPE, model=name)
    hashes = pages.hashes(name, 4)
    source = pages.alloc(one.pool, 4)
    written = pages.fill(one.pool, source, name)
    assert all(one.backend.batch_set_v1(hashes, source))
    form = one.backend._forms[PoolName.KV]
    assert all(one.backend._client.remove([hashes[2] + form.suffixes[piece]]))

    kv = PoolTransfer(name=PoolName.KV, hit_policy=PoolHitPolicy.ALL_PAGES)
    for node in (one, other):
        target = pages.alloc(node.pool, 4)
        # The owner of the record hears of the removal a moment later.
        eventually(partial(has_the_first, node, hashes, 2))
        assert node.backend.batch_exists_v2(hashes, [kv]).kv_hit_pages == 2
        assert node.backend.batch_get_v1(hashes, target) == [True, True, False, True]
        got = pages.read(node.pool, target)
        assert [got[i] for i in (0, 1, 3)] == [written[i] for i in (0, 1, 3)]
    assert all(one.backend.batch_set_v1(hashes, source))  # a set of held pages is ok, too
    assert other.backend.batch_exists(hashes) == 4


def test_each_call_is_one_request_whatever_its_size(make_node: Any) -> None:
    shape = SHAPE.but(tokens=4096)
    side = Shape(kind="mla", tokens=4096)
    node = make_node(0, shape, model="requests", sidecars=[(PoolName.INDEXER, side)])
    hashes = pages.hashes("requests", 300)
    source = pages.alloc(node.pool, 300)
    both = [
        PoolTransfer(name=name, host_indices=source, keys=hashes)
        for name in (PoolName.KV, PoolName.INDEXER)
    ]
    calls: tuple[Callable[[], Any], ...] = (
        lambda: node.backend.batch_set_v1(hashes, source),
        lambda: node.backend.batch_get_v1(hashes, source),
        lambda: node.backend.batch_set_v2(both),
        lambda: node.backend.batch_get_v2(both),
        lambda: node.backend.batch_exists(hashes),
        lambda: node.backend.batch_exists_v2(hashes, both),
    )
    for call in calls:
        before = requests(node)
        assert call()
        assert requests(node) - before == 1


def has_the_first(node: Any, hashes: list[str], count: int) -> bool:
    return bool(node.backend.batch_exists(hashes) == count)


def requests(node: Any) -> int:
    """The page requests of all workers, as this node's daemon counts them."""
    counts = node.backend._client.stats()["daemon"]["ipc"]
    return sum(int(counts[name]) for name in ("sets", "gets", "exists"))
