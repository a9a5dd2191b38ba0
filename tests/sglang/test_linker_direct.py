"""The linker where the daemon copies from and to the device itself. A memfd plays the device."""

from collections.abc import Iterator
from typing import Any

import pages
import pytest
import torch
from controller_node import Shape
from harness.cluster import Cluster
from harness.fixtures import FAST
from sglang.test.kits.unified_radix_cache.config import CONFIGS, CacheConfig
from tensors_on_stand_in import TensorsOnStandIn

SHAPES = {
    "mha": Shape(),
    "mha direct": Shape(layout="page_first_direct"),
    "mla": Shape(kind="mla"),
}
HYBRID = [cfg for cfg in CONFIGS if len(cfg.components) > 1]


def label(cfg: CacheConfig) -> str:
    return str(cfg.label)


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    # Lookups hold pages for seconds, and holds are at most a quarter of a pool.
    with Cluster(2, options={**FAST, "gpu": "stand-in", "pool-size": "512MiB"}) as cluster:
        cluster.start()
        yield cluster


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("to_direct", [True, False], ids=["to direct", "to staged"])
def test_another_node_loads_every_byte(make_linker: Any, name: str, to_direct: bool) -> None:
    """Pages are the same whoever copies them."""
    model = f"{name} {to_direct}"
    one = make_linker(0, SHAPES[name], model=model, stand_in=TensorsOnStandIn())
    stand_in = TensorsOnStandIn() if to_direct else None
    other = make_linker(1, SHAPES[name], model=model, stand_in=stand_in)
    tokens = pages.tokens(model, 7 * 16)
    assert one.prefill(tokens)
    loading = other.load(tokens + pages.tokens("more", 16))
    assert loading.tokens == len(tokens)
    assert other.holds(loading, tokens)
    assert one.linker._stores is one.linker._loads  # no staging


@pytest.mark.parametrize("cfg", HYBRID, ids=label)
def test_windows_and_states_are_loaded_with_the_rest(make_linker: Any, cfg: CacheConfig) -> None:
    model = f"direct {cfg.label}"
    one, other = (
        make_linker(i, cfg, model=model, stand_in=TensorsOnStandIn(256 << 20)) for i in (0, 1)
    )
    count = max(4, -(-(cfg.sliding_window_size or 0) // cfg.page_size) + 1)
    tokens = list(range(1, 1 + count * cfg.page_size))
    assert one.prefill(tokens)
    loading = other.load([*tokens, *range(9_000, 9_000 + cfg.page_size)])
    assert loading.tokens == len(tokens)
    assert other.holds(loading, tokens)


def test_a_lost_device_ends_only_the_loads_of_its_pass(make_linker: Any, nodes: Any) -> None:
    stand_in = TensorsOnStandIn()
    one = make_linker(0, Shape(), model="lost")
    other = make_linker(1, Shape(), model="lost", stand_in=stand_in)
    tokens = pages.tokens("lost", 96)
    assert one.prefill(tokens)
    stand_in.gpu.fault(fail_after=3)
    [loading] = other.admit(other.match(tokens))
    assert other.forward(loading) == [loading.req]
    assert nodes[1].status()["ipc"]["regions_lost"] > 0


def test_layers_land_one_by_one(make_linker: Any) -> None:
    """A forward pass computes with the first layers while the last one is under way."""
    stand_in = TensorsOnStandIn()
    one = make_linker(0, Shape(), model="layers")
    other = make_linker(1, Shape(), model="layers", stand_in=stand_in)
    tokens = pages.tokens("layers", 96)
    assert one.prefill(tokens)
    *firsts, last = other.layers()
    stand_in.gpu.fault(held=1, held_from=last.data_ptr() - stand_in.address)
    [loading] = other.admit(other.match(tokens))
    for layer in range(other.counter.num_layers - 1):
        other.counter.wait_until(layer)
    # K of the last layer may be there.
    number = len(firsts) // 2
    for tensor, rows in zip(firsts[:number], other.expected(tokens), strict=False):
        assert torch.equal(tensor[loading.slots], rows)
    assert not other.counter.futures[loading.batch][-1].done()
    stand_in.gpu.fault(held=0)
    assert other.forward(loading) == []
    assert other.holds(loading, tokens)
