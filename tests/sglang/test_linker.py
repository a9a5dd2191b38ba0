"""The linker between two trees, each with a daemon: every byte of every pool is compared."""

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pages
import pytest
import torch
from controller_node import Shape
from harness.cluster import Cluster
from harness.fixtures import FAST
from sglang.test.kits.unified_radix_cache.config import CONFIGS, CacheConfig

SHAPES = {
    "mha": Shape(),
    "mha asymmetric": Shape(v_head_dim=16),
    "mha direct": Shape(layout="page_first_direct"),
    "mha pages of one token": Shape(page_size=1),
    "mla": Shape(kind="mla"),
    "mla direct": Shape(kind="mla", layout="page_first_direct"),
}
HYBRID = [cfg for cfg in CONFIGS if len(cfg.components) > 1]
[MAMBA_4] = [cfg for cfg in CONFIGS if cfg.label == "FULL_MAMBA_ps4"]
ALL_IS_LOADED = SHAPES | {str(cfg.label): cfg for cfg in HYBRID if cfg.sliding_window_size is None}


def label(cfg: CacheConfig) -> str:
    return str(cfg.label)


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    # Lookups hold pages for seconds, and holds are at most a quarter of a pool.
    with Cluster(2, options={**FAST, "pool-size": "512MiB"}) as cluster:
        cluster.start()
        yield cluster


@pytest.mark.parametrize("name", SHAPES)
def test_another_node_loads_every_byte(make_linker: Any, name: str) -> None:
    one, other = (make_linker(i, SHAPES[name], model=name) for i in (0, 1))
    tokens = pages.tokens(name, 7 * 16)
    assert one.prefill(tokens)
    loading = other.load(tokens + pages.tokens("more", 16))
    assert loading.tokens == len(tokens)
    assert other.holds(loading, tokens)


@pytest.mark.parametrize("cfg", HYBRID, ids=label)
def test_windows_and_states_are_loaded_with_the_rest(make_linker: Any, cfg: CacheConfig) -> None:
    one, other = (make_linker(i, cfg, model=f"hybrid {cfg.label}") for i in (0, 1))
    count = max(4, -(-(cfg.sliding_window_size or 0) // cfg.page_size) + 1)
    tokens = list(range(1, 1 + count * cfg.page_size))
    assert one.prefill(tokens)
    loading = other.load([*tokens, *range(9_000, 9_000 + cfg.page_size)])
    assert loading.tokens == len(tokens)
    assert other.holds(loading, tokens)


def test_pages_that_were_evicted_from_the_device_come_back(make_linker: Any) -> None:
    node = make_linker(0, Shape(), model="evicted")
    tokens = pages.tokens("evicted", 96)
    assert node.prefill(tokens)
    assert node.found(tokens) == 0
    node.evict(96)
    for layer in node.layers():
        layer.zero_()
    loading = node.load(tokens)
    assert loading.tokens == 96
    assert node.holds(loading, tokens)


@pytest.mark.parametrize("name", ALL_IS_LOADED)
def test_loaded_pages_are_not_stored_again(make_linker: Any, nodes: Any, name: str) -> None:
    """SGLang asks for it. Then each node that loads a page would have a copy in its pool."""
    cfg = ALL_IS_LOADED[name]
    one, other = (make_linker(i, cfg, model=f"again {name}") for i in (0, 1))
    tokens = list(range(1, 1 + 4 * cfg.page_size))

    def keys_here() -> int:
        return int(nodes[1].status()["pool"]["keys"])

    assert one.prefill(tokens)
    before = keys_here()
    assert other.load(tokens).tokens == len(tokens)
    assert other.prefill(tokens)
    assert keys_here() == before
    other.evict(len(tokens))
    assert other.prefill(tokens)  # computed, not loaded
    assert keys_here() > before


def test_only_the_tail_that_the_device_lacks_is_loaded(make_linker: Any) -> None:
    one, other = (make_linker(i, Shape(), model="tail") for i in (0, 1))
    tokens = pages.tokens("tail", 96)
    assert one.prefill(tokens)
    assert other.prefill(tokens[:48])
    loading = other.load(tokens)
    assert loading.tokens == 48
    assert other.holds(loading, tokens)


def test_lookup_reports_every_length_that_has_a_state(make_linker: Any) -> None:
    """SGLang takes the longest one that all ranks have, so the longest of one rank is not
    enough."""
    one, other = (make_linker(i, MAMBA_4, model="lengths") for i in (0, 1))
    tokens = list(range(1, 33))
    for count in (8, 20):  # the tree's nodes, and so the states, end there
        assert one.prefill(tokens[:count])
    told = []
    lookup = other.linker.lookup

    def spied(rid: str, transfers: Any) -> Any:
        told.append(lookup(rid, transfers))
        return told[-1]

    other.linker.lookup = spied
    assert other.found(tokens) == 20
    assert told == [[2, 5]]


def test_each_layer_has_its_bytes_when_its_wait_ends(make_linker: Any) -> None:
    one, other = (make_linker(i, Shape(layers=6), model="layers") for i in (0, 1))
    tokens = pages.tokens("layers", 96)
    assert one.prefill(tokens)
    [loading] = other.admit(other.match(tokens))
    expected = other.expected(tokens)
    for layer in range(6):
        other.counter.wait_until(layer)
        for number in (layer, layer + 6):  # K and V
            assert torch.equal(other.layers()[number][loading.slots], expected[number])
    assert other.forward(loading) == []


def test_a_small_region_moves_many_pages_in_rounds(make_linker: Any) -> None:
    shape = Shape(tokens=1024)
    page_bytes = 2 * shape.layers * shape.page_size * shape.heads * shape.head_dim * 2
    options: dict[str, Any] = {"model": "rounds", "staging_bytes": 2 * (3 * page_bytes + 512)}
    one, other = (make_linker(i, shape, **options) for i in (0, 1))
    tokens = pages.tokens("rounds", 320)
    assert one.prefill(tokens)
    loading = other.load(tokens)
    assert loading.tokens == 320
    assert other.holds(loading, tokens)


def test_requests_of_one_pass_with_the_same_pages_get_copies_of_their_own(
    make_linker: Any,
) -> None:
    one, other = (make_linker(i, Shape(), model="same pages") for i in (0, 1))
    tokens = pages.tokens("same pages", 64)
    assert one.prefill(tokens)
    loadings = other.admit(other.match(tokens), other.match(tokens))
    assert other.forward(*loadings) == []
    assert all(other.holds(each, tokens) for each in loadings)
    assert not torch.equal(loadings[0].slots, loadings[1].slots)


def test_a_cancelled_load_never_starts(make_linker: Any) -> None:
    from sglang.srt.mem_cache.base_prefix_cache import InitLoadBackParams

    one, other = (make_linker(i, Shape(), model="cancel") for i in (0, 1))
    tokens = pages.tokens("cancel", 64)
    assert one.prefill(tokens)
    req = other.match(tokens)
    other.cache.init_load_back(
        InitLoadBackParams(req.best_match_node, req.host_hit_length, req=req)
    )
    other.cache.linker.release_request(req.rid)
    assert other.cache.ready_to_load_host_cache() == -1
    assert not other.linker.cancel_queued_load(req.rid)
    assert not any(layer.any() for layer in other.layers())


def test_a_request_is_queued_once(make_linker: Any) -> None:
    one, other = (make_linker(i, Shape(), model="queued") for i in (0, 1))
    assert one.prefill(pages.tokens("queued", 64))
    queued: list[tuple[str, Any]] = []
    load = other.linker.load

    def spied(rid: str, transfers: Any) -> bool:
        queued.append((rid, transfers))
        return bool(load(rid, transfers))

    other.linker.load = spied
    [loading] = other.admit(other.match(pages.tokens("queued", 64)))
    assert other.forward(loading) == []
    rid, transfers = queued[0]
    assert load(rid, transfers)
    assert not load(rid, transfers)
    assert other.linker.cancel_queued_load(rid)


def test_a_node_that_only_stores_finds_nothing(make_linker: Any) -> None:
    canary = make_linker(0, Shape(), model="canary", stores_only=True)
    plain = make_linker(1, Shape(), model="canary")
    tokens = pages.tokens("canary", 64)
    assert canary.prefill(tokens)
    canary.evict(64)
    assert canary.found(tokens) == 0
    assert plain.found(tokens) == 64


def test_a_reset_forgets_what_was_under_way(make_linker: Any) -> None:
    one, other = (make_linker(i, Shape(), model="reset") for i in (0, 1))
    tokens = pages.tokens("reset", 64)
    assert one.prefill(tokens)
    other.admit(other.match(tokens))
    other.insert(pages.tokens("half way", 32))
    other.cache.reset()
    other.allocator.clear()
    assert other.linker.num_completed_offloads() == 0
    assert other.linker.start_layer_wise_loading() == -1
    loading = other.load(tokens)
    assert other.holds(loading, tokens)


def test_sessions_store_their_pages_like_others(make_linker: Any) -> None:
    one, other = (make_linker(i, Shape(), model="session") for i in (0, 1))
    tokens = pages.tokens("session", 64)
    given: list[Any] = []
    offload = one.linker.offload

    def spied(transfers: Sequence[Any], session_id: str | None = None) -> bool:
        given.append(session_id)
        return bool(offload(transfers, session_id="a session"))

    one.linker.offload = spied
    assert one.prefill(tokens)
    assert given == [None]
    assert other.found(tokens) == 64


def test_close_ends_the_threads_and_may_come_twice(make_linker: Any) -> None:
    def mine() -> int:
        return sum("peercache" in thread.name for thread in threading.enumerate())

    before = mine()
    node = make_linker(0, Shape(), model="close")
    assert mine() == before + 2
    tokens = pages.tokens("close", 32)
    assert node.prefill(tokens)
    node.linker.close()
    assert mine() == before
    node.linker.close()
    node.evict(32)
    assert node.found(tokens) == 0


class Stream:
    """Stands for a CUDA stream. Its copies happen at once, through blocks of their own as on a
    device."""

    def __init__(self) -> None:
        self.waits = 0

    def synchronize(self) -> None:
        self.waits += 1

    def record_event(self) -> "Stream":
        return self


@pytest.mark.parametrize("name", ["mha", "mha direct", "mla"])
def test_copies_through_device_memory_are_the_same(make_linker: Any, name: str) -> None:
    shape = SHAPES[name].but(tokens=1024)
    options: dict[str, Any] = {"model": f"stream {name}", "staging_bytes": 1 << 18}
    one, other = (make_linker(i, shape, **options) for i in (0, 1))
    streams = []
    for each in (one.linker._stores, other.linker._loads):
        each._stream = Stream()
        streams.append(each._stream)
    tokens = pages.tokens(name, 320)
    assert one.prefill(tokens)
    assert other.holds(other.load(tokens), tokens)
    assert streams[0].waits
    assert streams[1].waits >= shape.layers  # a layer has landed when its copy has
