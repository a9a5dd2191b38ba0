"""Chunks that are quicker to compute than to load are computed, and late loads are given up."""

from typing import Any

import pytest
from harness.slow_forecasts import SLOW_S, forecast_slowly
from harness.waiting import eventually
from offload_node import OffloadNode, eventually_found, keys_of

from peercache_client.vllm.settings import Settings

CHUNKS = 8


@pytest.fixture
def slow_forecasts(monkeypatch: pytest.MonkeyPatch) -> None:
    forecast_slowly(monkeypatch)


def stored(make_node: Any, nodes: Any) -> Any:
    keys = keys_of("stored", CHUNKS)
    make_node(nodes[0].socket_path).prefill(keys)
    eventually_found(make_node(nodes[1].socket_path), keys)
    return keys


def test_chunks_that_are_quicker_to_compute_are_misses(
    make_node: Any, nodes: Any, slow_forecasts: None
) -> None:
    keys = stored(make_node, nodes)
    quick = make_node(nodes[1].socket_path, tier={"prefill_tokens_per_s": 1e6})
    assert quick.found(keys) == 0
    slow = make_node(nodes[1].socket_path, tier={"prefill_tokens_per_s": 1})
    assert slow.found(keys) == CHUNKS
    quick.found(keys_of("nowhere", 1))  # tells the daemon
    operations = nodes[1].status()["operations"]
    assert operations["cut_pages"] == CHUNKS
    assert operations["cut_us"] == pytest.approx(CHUNKS * SLOW_S * 1e6)


def test_the_rate_is_measured_from_lookups_to_stores(
    make_node: Any, nodes: Any, slow_forecasts: None
) -> None:
    keys = stored(make_node, nodes)
    node: OffloadNode = make_node(nodes[1].socket_path, tier={"prefill_tokens_per_s": None})
    assert node.tier._worth.tokens_per_s is None
    assert node.found(keys) == CHUNKS
    for turn in range(4):
        own = keys_of(f"own {turn}", CHUNKS)
        request = node.begin(own)
        assert node.wait_found(request, own) == 0
        node.compute(request, own)
        node.settle()
        node.manager.on_request_finished(request)
    rate = node.tier._worth.tokens_per_s
    assert rate is not None
    assert rate > 100
    node.evict_host_memory()
    eventually(lambda: node.found(keys) == 0, 20, "chunks are cut")


@pytest.mark.parametrize("given", [-1, "fast", True, 2e9])
def test_an_impossible_rate_is_refused(given: Any) -> None:
    with pytest.raises(ValueError, match=r"prefill_tokens_per_s is .*: a number from 0 to 1e\+09"):
        Settings.parse({"prefill_tokens_per_s": given})


def test_a_factor_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match=r"give_up_factor is 0.5: 0, or 1 and more"):
        Settings.parse({"give_up_factor": 0.5})
