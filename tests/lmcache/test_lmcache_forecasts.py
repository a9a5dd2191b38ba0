"""Chunks that are quicker to compute than to load are computed, and late loads are given up."""

from collections import Counter
from typing import Any

import pytest
from harness.slow_forecasts import SLOW_S, forecast_slowly
from harness.waiting import eventually
from lmcache.v1.distributed.api import ObjectKey
from storage_node import StorageNode, eventually_found, keys_of

from peercache_client.lmcache.chunk_order import by_chunk
from peercache_client.lmcache.settings import Settings

CHUNKS = 8


def test_chunks_that_are_quicker_to_compute_are_misses(
    make_node: Any, nodes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = keys_of("stored", CHUNKS)
    make_node(nodes[0].socket_path).prefill(keys)
    plain: StorageNode = make_node(nodes[1].socket_path)
    eventually_found(plain, keys)
    forecast_slowly(monkeypatch)
    quick, slow, own = (
        make_node(nodes[1].socket_path, params=params)
        for params in ({"prefill_tokens_per_s": 1e9}, {"prefill_tokens_per_s": 1}, {})
    )
    assert slow.found(keys) == CHUNKS
    assert quick.found(keys) == 0
    quick.found(keys_of("nowhere", 1))  # tells the daemon
    operations = nodes[1].status()["operations"]
    assert operations["cut_pages"] == CHUNKS
    # A new server asks for each chunk in two layouts.
    assert operations["cut_us"] == pytest.approx(2 * CHUNKS * SLOW_S * 1e6)
    # The rate is measured from lookups to stores.
    assert own.found(keys) == CHUNKS
    for turn in range(4):
        computed = keys_of(f"own {turn}", CHUNKS)
        assert own.found(computed) == 0
        own.prefill(computed)
    assert own.adapter._worth.tokens_per_s > 100
    eventually(lambda: own.found(keys) == 0, 20, "chunks are cut")


def test_a_late_load_is_given_up(
    make_node: Any, nodes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = keys_of("late", CHUNKS)
    make_node(nodes[0].socket_path).prefill(keys)
    node: StorageNode = make_node(nodes[1].socket_path, params={"prefill_tokens_per_s": 1e9})
    eventually_found(node, keys)
    before = node.counted()["load"]
    forecast = node.adapter._pages.forecast

    def forecast_and_freeze(*asked: Any) -> Any:
        answer = forecast(*asked)
        nodes[0].freeze()
        return answer

    monkeypatch.setattr(node.adapter._pages, "forecast", forecast_and_freeze)
    try:
        assert node.found(keys) == 0
    finally:
        nodes[0].thaw()
    late = Counter(node.counted()["load"])
    late.subtract(before)
    assert +late == {"deadline": CHUNKS}
    monkeypatch.undo()
    eventually_found(node, keys)
    assert nodes[1].status()["operations"]["given_up_pages"] == CHUNKS


def test_keys_of_all_ranks_are_one_chunk_each() -> None:
    rows = [
        keys_of("ranks", 3, kv_rank=ObjectKey.ComputeKVRank(2, rank, 2, rank)) for rank in (0, 1)
    ]
    rank_by_rank = rows[0] + rows[1]
    chunks = by_chunk(rank_by_rank, range(6))
    assert chunks is not None
    assert (chunks.places, chunks.keys_each) == ([0, 3, 1, 4, 2, 5], 2)
    chunk_by_chunk = [key for chunk in zip(*rows, strict=True) for key in chunk]
    chunks = by_chunk(chunk_by_chunk, range(6))
    assert chunks is not None
    assert (chunks.places, chunks.keys_each) == (list(range(6)), 2)
    assert by_chunk(rows[0] + rows[1][:2], range(5)) is None, "a rank lacks one"
    hybrid = keys_of("ranks", 3) + keys_of("ranks", 3, object_group_id=1)
    assert by_chunk(hybrid, range(6)) is None


@pytest.mark.parametrize("given", [0, 1.5, True, "256", 1 << 21])
def test_impossible_chunks_are_refused(given: Any) -> None:
    with pytest.raises(ValueError, match=r"chunk_tokens is .*: a whole number from 1 to 1048576"):
        Settings.parse({"chunk_tokens": given})
