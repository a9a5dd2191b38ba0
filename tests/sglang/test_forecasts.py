"""Pages that are quicker to compute than to load are computed."""

from typing import Any

import pages
import pytest
from controller_node import Shape
from harness.slow_forecasts import forecast_slowly
from harness.waiting import eventually

from peercache_client.sglang.linker_settings import LinkerSettings

SHAPE = Shape()
PAGES = 8


@pytest.fixture
def slow_forecasts(monkeypatch: pytest.MonkeyPatch) -> None:
    forecast_slowly(monkeypatch)


@pytest.mark.parametrize("hybrid", [False, True])
def test_pages_that_are_quicker_to_compute_are_misses(
    make_node: Any, slow_forecasts: None, hybrid: bool
) -> None:
    name = f"quick to compute {hybrid}"
    hashes = pages.hashes(name, PAGES)
    one = make_node(0, SHAPE, model=name)
    assert all(one.backend.batch_set_v1(hashes, pages.alloc(one.pool, PAGES)))

    def found(node: Any) -> int:
        if hybrid:
            return int(node.backend.batch_exists_v2(hashes).kv_hit_pages)
        return int(node.backend.batch_exists(hashes))

    eventually(lambda: found(one) == PAGES)
    slow = make_node(0, SHAPE, model=name, prefill_tokens_per_s=0.1)
    assert found(slow) == PAGES
    quick = make_node(0, SHAPE, model=name, prefill_tokens_per_s=1e6)
    assert found(quick) == 0
    assert quick.backend._worth.take_news().cut_pages == PAGES


def test_the_rate_is_measured_from_lookups_to_stores(make_node: Any) -> None:
    node = make_node(0, SHAPE, model="rate", prefill_tokens_per_s=None)
    source = pages.alloc(node.pool, PAGES)
    for turn in range(4):
        assert node.backend._worth.tokens_per_s is None
        hashes = pages.hashes(f"rate {turn}", PAGES)
        assert node.backend.batch_exists(hashes) == 0
        assert all(node.backend.batch_set_v1(hashes, source))
    rate = node.backend._worth.tokens_per_s
    assert rate is not None
    assert rate > 1


def test_the_linker_gives_no_load_up() -> None:
    assert LinkerSettings.parse({"prefill_tokens_per_s": 5}).prefill_tokens_per_s == 5
    with pytest.raises(ValueError, match="unknown key 'give_up_factor'"):
        LinkerSettings.parse({"give_up_factor": 3})
