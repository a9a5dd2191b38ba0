"""The connector with SGLang's own page hashes, KVArgs and host pools, and gloo's minimum."""

import multiprocessing
import random
from array import array
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pages
import pytest
from controller_node import Shape, extra_config, host_pool, publish
from harness.engine import PAGE_SIZE, Engine, mapping_of, tokens_of

from peercache_client.connector import (
    AsyncKVPrefetchQueue,
    ConnectorMetadata,
    RemoteKVConnector,
    minimum_over,
)
from peercache_client.connector.page_chain import PageChain
from peercache_client.page_hash import namespace_seed, page_hashes


@pytest.mark.parametrize("salt", [(None, None), ("adapter", None), (None, "tenant"), ("a", "b")])
@pytest.mark.parametrize("largest", [100, 2**32, 2**40])
@pytest.mark.parametrize("eagle", [False, True], ids=["tokens", "eagle"])
def test_page_hashes_are_sglangs(
    salt: tuple[str | None, str | None], largest: int, eagle: bool
) -> None:
    from sglang.srt.mem_cache.radix_cache import RadixKey
    from sglang.srt.mem_cache.utils import get_storage_hash_str

    chosen = random.Random(largest)

    def theirs(tokens: list[int], prior: str | None, **named: str | None) -> list[str]:
        key, _ = RadixKey(array("q", tokens), **named).maybe_to_bigram_view(eagle)
        made: list[str] = get_storage_hash_str(
            key.page_aligned(page_size), prior, page_size=page_size
        )
        return made

    for page_size in (1, 4, 64):
        tokens = [chosen.randrange(largest) for _ in range(page_size * 5 + eagle)]
        sglangs = theirs(tokens, None, extra_key=salt[0], cache_salt=salt[1])
        assert len(sglangs) == 5
        assert page_hashes(tokens, page_size, namespace_seed(*salt), pairs=eagle) == sglangs
        more = [chosen.randrange(largest) for _ in range(page_size * 2 + eagle)]
        assert page_hashes(more, page_size, sglangs[-1], pairs=eagle) == theirs(more, sglangs[-1])


def test_chunked_page_hashes_match_the_whole_prompt_with_eagle() -> None:
    """A page's last pair needs the next page's first token, so a chunk's last page waits for it."""
    tokens = pages.tokens("eagle chunks", 100)
    chain = PageChain(16, pairs=True)
    whole = page_hashes(tokens, 16, pairs=True)
    assert len(whole) == 6
    for known, expected in ((32, 1), (33, 2), (48, 2), (100, 6), (40, 2), (100, 6)):
        assert chain.hashes(array("q", tokens[:known]), None) == whole[:expected]
    changed = array("q", tokens)
    changed[32] += 1  # the boundary token of the second page
    assert chain.hashes(changed, None)[:2] == [whole[0], page_hashes(changed, 16, pairs=True)[1]]
    assert chain.hashes(array("q", tokens), None) == whole


def kv_args_of(pool: Any) -> Any:
    """KVArgs as SGLang makes them: K of each layer, then V, and the size of one page of each."""
    from sglang.srt.disaggregation.base.conn import KVArgs

    layers = [*pool.kv_buffer[0], *pool.kv_buffer[1]]
    args = KVArgs()
    args.kv_data_ptrs = [layer.data_ptr() for layer in layers]
    args.kv_data_lens = [layer.nbytes for layer in layers]
    args.kv_item_lens = [layer[0].nbytes * pool.page_size for layer in layers]
    return args


@pytest.fixture
def make_side(nodes: Any) -> Iterator[Any]:
    """`make_side(0, "shm")`: one of SGLang's host pools, and a connector with its buffers."""
    with ExitStack() as stack:

        def make(place: int, allocator: str) -> tuple[Any, RemoteKVConnector]:
            socket_path = nodes[place].socket_path
            shape = Shape(layout="layer_first")
            publish(shape, extra_config(socket_path, allocator=allocator))
            pool = host_pool(shape)
            metadata = ConnectorMetadata(
                f"pool {allocator}", 16, "bfloat16", socket_path=str(socket_path)
            )
            connector = RemoteKVConnector(metadata)
            stack.callback(connector.close)
            connector.register_kv_buffers(kv_args_of(pool))
            return pool, connector

        yield make


@pytest.mark.parametrize("allocator", ["shm", "none"])
def test_pages_of_sglangs_pools_go_from_node_to_node(
    make_side: Any, caplog: Any, allocator: str
) -> None:
    pool, connector = make_side(0, allocator)
    other_pool, other = make_side(1, allocator)
    tokens = pages.tokens("pool", 5 * 16)
    source = pages.alloc(pool, 5)
    written = pages.fill(pool, source, "pool")

    def mapping(indices: Any) -> list[tuple[int, slice]]:
        return mapping_of([index // 16 for index in indices[::16].tolist()])

    future, end = connector.store_kv_async("w", mapping(source), tokens)
    assert future.result() == end == 80
    pages.alloc(other_pool, 3)  # other pages than on the first node
    target = pages.alloc(other_pool, 5)
    assert other.num_external_matched_tokens("r", tokens) == 80
    future = other.retrieve_kv_async("r", mapping(target), tokens)
    assert future.result() and future.result() == 80
    assert pages.read(other_pool, target) == written


def run_rank(rank: int, socket_path: Path, store: Path, answers: Any) -> None:
    """Both ranks store a prompt, rank 1 without its last two pages; then both prefetch it."""
    import torch.distributed

    try:
        torch.distributed.init_process_group(
            "gloo", init_method=f"file://{store}", rank=rank, world_size=2
        )
        tokens = tokens_of("gloo", 6)
        with Engine(socket_path, model_name="gloo", tp_rank=rank, tp_size=2) as engine:
            engine.register()
            engine.store("w", tokens[: (6 - 2 * rank) * PAGE_SIZE], range(6 - 2 * rank))
            engine.blank()
            torch.distributed.barrier()
            queue = AsyncKVPrefetchQueue(
                engine.connector,
                lambda _, count: range(20, 20 + count),
                threshold_tokens=16,
                minimum=minimum_over(torch.distributed.group.WORLD),
            )
            queue.add("r", tokens)
            done: list[Any] = []
            while queue:
                done += queue.poll()
            right = engine.right_pages(tokens, done[0].pages)
            answers.put((rank, done[0].end, right))
            torch.distributed.barrier()
        torch.distributed.destroy_process_group()
    except BaseException as error:
        answers.put((rank, repr(error), 0))
        raise


def test_ranks_that_are_processes_agree_over_gloo(nodes: Any, tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    ranks = [
        context.Process(
            target=run_rank, args=(rank, nodes[0].socket_path, tmp_path / "store", answers)
        )
        for rank in (0, 1)
    ]
    for process in ranks:
        process.start()
    try:
        found = sorted(answers.get(timeout=120) for _ in ranks)
        assert found == [(0, 4 * PAGE_SIZE, 4), (1, 4 * PAGE_SIZE, 4)]
    finally:
        for process in ranks:
            process.join(20)
            process.kill()
