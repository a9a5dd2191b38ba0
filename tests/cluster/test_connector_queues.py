"""Prefetches and stores of many requests, which must end the same way on all TP ranks."""

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
from harness.clock import seconds
from harness.cluster import Cluster
from harness.engine import PAGE_SIZE, Agreement, Engine, mapping_of, tokens_of
from harness.fixtures import MakeCluster
from harness.waiting import eventually

from peercache_client.connector import AsyncKVPrefetchQueue, AsyncKVStoreQueue
from peercache_client.packed_keys import pack_with_suffixes
from peercache_client.page_hash import page_hashes

MakeEngine = Callable[..., Engine]


class Pages:
    """An engine's page allocator."""

    def __init__(self, count: int) -> None:
        self.free = list(range(count))

    def __call__(self, req_id: str, count: int) -> list[int] | None:
        if count > len(self.free):
            return None
        taken, self.free = self.free[:count], self.free[count:]
        return taken


def drain(queue: Any, count: int) -> list[Any]:
    """Polls until `count` requests are done, and returns them."""
    done: list[Any] = []

    def enough() -> bool:
        done.extend(queue.poll())
        return len(done) >= count

    eventually(enough)
    assert len(done) == count
    return done


def all_of(queue: Any) -> list[Any]:
    done: list[Any] = []
    while queue:
        done += queue.poll()
    return done


def on_all_ranks(work: Sequence[Callable[[], Any]]) -> list[Any]:
    """Runs each rank's part on its own thread, and returns their results."""
    results: list[Any] = [None] * len(work)
    failures: list[BaseException] = []

    def run(rank: int) -> None:
        try:
            results[rank] = work[rank]()
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(len(work))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return results


# --- prefetches -------------------------------------------------------------------------------


def test_prefetch_loads_cached_pages_for_a_waiting_request(
    three_nodes: Cluster, engine: MakeEngine
) -> None:
    writer, reader = (engine(node, model_name="prefetch") for node in three_nodes.daemons[:2])
    tokens = tokens_of("prefetch", 8, more=3)
    writer.store("w", tokens[: 6 * PAGE_SIZE], range(6))
    queue = AsyncKVPrefetchQueue(reader.connector, Pages(64), threshold_tokens=32)
    # The engine has already computed part of the second page.
    assert queue.add("r", tokens, computed_tokens=2 * PAGE_SIZE - 1)
    assert not queue.add("r", tokens)
    (done,) = drain(queue, 1)
    assert (done.req_id, done.begin, done.end) == ("r", PAGE_SIZE, 6 * PAGE_SIZE)
    assert reader.right_pages(tokens, done.pages, first=1) == 5
    assert len(queue) == queue.in_flight_tokens == 0
    assert queue.poll() == []


def test_prefetch_below_the_token_threshold_transfers_nothing(
    three_nodes: Cluster, engine: MakeEngine
) -> None:
    one = engine(three_nodes[0], model_name="few")
    tokens = tokens_of("few", 8)
    one.store("w", tokens[: 3 * PAGE_SIZE], range(3))
    one.blank()
    pages = Pages(64)
    queue = AsyncKVPrefetchQueue(one.connector, pages, threshold_tokens=4 * PAGE_SIZE)
    assert not queue.add("short", tokens[: 4 * PAGE_SIZE - 1])
    assert queue.add("r", tokens)
    (done,) = drain(queue, 1)
    assert (done.begin, done.end, done.pages) == (0, 0, [])
    assert len(pages.free) == 64
    assert one.is_blank()


def test_prefetch_keeps_within_its_in_flight_token_limit(
    three_nodes: Cluster, engine: MakeEngine
) -> None:
    writer, reader = (engine(node, model_name="room") for node in three_nodes.daemons[:2])
    prompts = {f"r{i}": tokens_of(f"room {i}", 4) for i in range(6)}
    for name, tokens in prompts.items():
        writer.store(name, tokens, range(4))
    largest = 0

    def allocate(req_id: str, count: int) -> list[int]:
        nonlocal largest
        largest = max(largest, queue.in_flight_tokens + count * PAGE_SIZE)
        return list(range(int(req_id[1:]) * 4, int(req_id[1:]) * 4 + count))

    queue = AsyncKVPrefetchQueue(
        reader.connector, allocate, threshold_tokens=16, in_flight_tokens_max=8 * PAGE_SIZE
    )
    for name, tokens in prompts.items():
        assert queue.add(name, tokens)
    done = drain(queue, 6)
    assert {each.req_id for each in done} == set(prompts)
    for each in done:
        assert each.end == 4 * PAGE_SIZE
        assert reader.right_pages(prompts[each.req_id], each.pages) == 4
    assert largest <= 8 * PAGE_SIZE


def test_a_request_without_room_goes_without(three_nodes: Cluster, engine: MakeEngine) -> None:
    one = engine(three_nodes[0], model_name="no room")
    tokens = tokens_of("no room", 4)
    one.store("w", tokens, range(4))
    queue = AsyncKVPrefetchQueue(one.connector, Pages(3), threshold_tokens=16)
    queue.add("r", tokens)
    (done,) = drain(queue, 1)
    assert (done.end, done.pages) == (0, [])


def test_stopped_prefetch_returns_only_correct_pages_and_can_restart(
    make_cluster: MakeCluster, engine: MakeEngine
) -> None:
    cluster = make_cluster(1)
    one = engine(cluster[0], chunk_pages=1, timeout_s=seconds(1.0))
    tokens = tokens_of("stopped", 8)
    one.store("w", tokens, range(8))
    pages = Pages(64)
    queue = AsyncKVPrefetchQueue(one.connector, pages, threshold_tokens=16)
    queue.add("r", tokens)
    eventually(lambda: queue.poll() == [] and len(pages.free) == 56)
    cluster[0].freeze()
    queue.stop("r")
    cluster[0].thaw()
    (done,) = drain(queue, 1)
    assert one.right_pages(tokens, done.pages) >= done.end // PAGE_SIZE
    # The same request may start again, and is then not stopped.
    assert queue.add("r", tokens)
    (done,) = drain(queue, 1)
    assert done.end == 8 * PAGE_SIZE
    assert one.right_pages(tokens, done.pages) == 8


def test_without_a_daemon_a_prefetch_is_a_miss(
    make_cluster: MakeCluster, engine: MakeEngine
) -> None:
    cluster = make_cluster(1)
    one = engine(cluster[0])
    cluster[0].kill()
    queue = AsyncKVPrefetchQueue(one.connector, Pages(64), threshold_tokens=16)
    queue.add("r", tokens_of("gone", 4))
    (done,) = drain(queue, 1)
    assert (done.end, done.pages) == (0, [])


# --- the same on all ranks --------------------------------------------------------------------


def test_all_ranks_prefetch_the_shortest_prefix_any_rank_has(
    three_nodes: Cluster, engine: MakeEngine
) -> None:
    """Rank 1 lacks the end of one prompt, and all of another."""
    ranks: dict[str, Any] = {"model_name": "ranks", "tp_size": 2}
    writers = [engine(three_nodes[0], tp_rank=rank, **ranks) for rank in range(2)]
    readers = [engine(three_nodes[1], tp_rank=rank, **ranks) for rank in range(2)]
    prompts = {name: tokens_of(f"ranks {name}", 6) for name in ("whole", "short", "none")}
    stored = {"whole": (6, 6), "short": (6, 4), "none": (6, 0)}
    for name, tokens in prompts.items():
        for writer, pages in zip(writers, stored[name], strict=True):
            writer.store(name, tokens[: pages * PAGE_SIZE], range(pages))
    first, second = prefetched_by_ranks(readers, [Pages(64), Pages(64)], prompts)
    assert first == second  # same requests, lengths and pages, in the same order
    assert {each.req_id: each.end // PAGE_SIZE for each in first} == {
        "whole": 6,
        "short": 4,
        "none": 0,
    }
    for reader in readers:
        for each in first:
            assert reader.right_pages(prompts[each.req_id], each.pages) == len(each.pages)


@pytest.mark.parametrize("lost_pages", [1, 6])
def test_page_lost_on_one_rank_after_match_is_dropped_by_all(
    three_nodes: Cluster, engine: MakeEngine, lost_pages: int
) -> None:
    """The pages vanish during the allocator call, which comes between match and retrieve."""
    ranks: dict[str, Any] = {"model_name": f"lost {lost_pages}", "tp_size": 2}
    engines = [engine(three_nodes[0], tp_rank=rank, **ranks) for rank in range(2)]
    tokens = tokens_of("lost", 6)
    for each in engines:
        each.store("w", tokens, range(6))

    def allocate_and_lose(req_id: str, count: int) -> list[int]:
        connector = engines[1].connector
        lost = pack_with_suffixes(page_hashes(tokens, 16)[-lost_pages:], connector._suffixes)
        assert all(connector._client.remove(lost))
        return list(range(8, 8 + count))

    allocators = [lambda _, count: list(range(8, 8 + count)), allocate_and_lose]
    [first], [second] = prefetched_by_ranks(engines, allocators, {"r": tokens})
    assert first == second
    assert first.end == (6 - lost_pages) * PAGE_SIZE
    for each in engines:
        assert each.right_pages(tokens, first.pages) >= 6 - lost_pages


def test_a_rank_without_room_keeps_in_step(three_nodes: Cluster, engine: MakeEngine) -> None:
    ranks: dict[str, Any] = {"model_name": "room on one", "tp_size": 2}
    engines = [engine(three_nodes[0], tp_rank=rank, **ranks) for rank in range(2)]
    tokens = tokens_of("room on one", 6)
    for each in engines:
        each.store("w", tokens, range(6))
    [first], [second] = prefetched_by_ranks(engines, [Pages(5), Pages(64)], {"r": tokens})
    assert first.end == second.end == 0
    assert (first.pages, second.pages) == ([], list(range(6)))  # each rank frees its own pages


def prefetched_by_ranks(
    engines: Sequence[Engine], allocators: Sequence[Any], prompts: dict[str, list[int]]
) -> list[Any]:
    """The results of these requests from each rank's queue."""
    agreement = Agreement(len(engines))

    def rank(number: int) -> list[Any]:
        queue = AsyncKVPrefetchQueue(
            engines[number].connector,
            allocators[number],
            threshold_tokens=16,
            minimum=agreement.of_rank(number),
        )
        for name, tokens in prompts.items():
            assert queue.add(name, tokens)
        return all_of(queue)

    return on_all_ranks([partial(rank, number) for number in range(len(engines))])


def test_stores_are_done_when_all_ranks_have_stored(
    three_nodes: Cluster, engine: MakeEngine
) -> None:
    ranks: dict[str, Any] = {"model_name": "store ranks", "tp_size": 2}
    engines = [engine(three_nodes[0], tp_rank=rank, **ranks) for rank in range(2)]
    prompts = [tokens_of(f"store ranks {i}", 4) for i in range(5)]
    agreement = Agreement(2)

    def rank(number: int) -> list[Any]:
        one = engines[number]
        queue = AsyncKVStoreQueue(
            one.connector, threshold_tokens=16, minimum=agreement.of_rank(number)
        )
        for i, tokens in enumerate(prompts):
            pages = range(4 * i, 4 * i + 4)
            one.compute(tokens, pages)
            assert queue.add(f"w{i}", mapping_of(pages), tokens, last=True)
        return all_of(queue)

    first, second = on_all_ranks([lambda: rank(0), lambda: rank(1)])
    assert first == second
    assert [each.end for each in first] == [4 * PAGE_SIZE] * 5
    assert sorted(page for each in first for page in each.pages) == list(range(20))


# --- stores -----------------------------------------------------------------------------------


def test_store_queue_batches_chunks_up_to_the_token_threshold(
    three_nodes: Cluster, engine: MakeEngine
) -> None:
    one = engine(three_nodes[0], model_name="gather")
    tokens = tokens_of("gather", 7)
    one.compute(tokens, range(7))
    queue = AsyncKVStoreQueue(one.connector, threshold_tokens=3 * PAGE_SIZE)
    begun = []
    for page in range(7):
        assert queue.add("w", mapping_of([page], first=page), tokens, last=page == 6)
        begun.append(len(queue))
    assert begun == [0, 0, 1, 1, 1, 2, 3]
    done = drain(queue, 3)
    assert sorted((each.begin, each.end) for each in done) == [(0, 48), (48, 96), (96, 112)]
    assert one.retrieve("r", tokens, range(10, 17)) == 7 * PAGE_SIZE
    assert queue.in_flight_tokens == 0


def test_store_queue_drops_and_counts_tokens_above_its_limit(
    make_cluster: MakeCluster, engine: MakeEngine
) -> None:
    cluster = make_cluster(1)
    one = engine(cluster[0])
    tokens = tokens_of("too much", 12)
    one.compute(tokens, range(12))
    one.store("first", tokens[:PAGE_SIZE], [0])
    queue = AsyncKVStoreQueue(
        one.connector, threshold_tokens=16, in_flight_tokens_max=8 * PAGE_SIZE
    )
    cluster[0].freeze()
    one.compute(tokens, range(12))
    assert queue.add("w", mapping_of(range(4)), tokens)
    assert queue.add("w", mapping_of(range(4, 8), first=4), tokens)
    assert not queue.add("w", mapping_of(range(8, 10), first=8), tokens)
    assert queue.dropped_tokens == 2 * PAGE_SIZE
    cluster[0].thaw()
    drain(queue, 2)
    # There is room again, but this request has a gap. Another request is accepted.
    assert not queue.add("w", mapping_of(range(10, 12), first=10), tokens, last=True)
    other = tokens_of("another", 4)
    one.compute(other, range(20, 24))
    assert queue.add("other", mapping_of(range(20, 24)), other, last=True)
    drain(queue, 1)
    assert one.connector.num_external_matched_tokens("r", tokens) == 8 * PAGE_SIZE
    assert one.connector.num_external_matched_tokens("r", other) == 4 * PAGE_SIZE


def test_an_abandoned_request_gives_its_pages_back(
    three_nodes: Cluster, engine: MakeEngine
) -> None:
    one = engine(three_nodes[0], model_name="abandoned")
    tokens = tokens_of("abandoned", 4)
    queue = AsyncKVStoreQueue(one.connector, threshold_tokens=4 * PAGE_SIZE)
    assert queue.add("w", mapping_of(range(2)), tokens)
    assert queue.in_flight_tokens == 2 * PAGE_SIZE
    assert queue.abandon("w") == [0, 1]
    assert queue.in_flight_tokens == len(queue) == 0
    assert one.connector.num_external_matched_tokens("r", tokens) == 0


@pytest.mark.parametrize(
    "mapping", [[(0, slice(0, 8))], [(0, slice(16, 8))], [(0, slice(0, 16)), (1, slice(32, 48))]]
)
def test_store_queue_refuses_partial_pages_and_gaps(
    three_nodes: Cluster, engine: MakeEngine, mapping: list[tuple[int, slice]]
) -> None:
    one = engine(three_nodes[0], model_name="not whole")
    queue = AsyncKVStoreQueue(one.connector, threshold_tokens=16)
    assert not queue.add("w", mapping, tokens_of("not whole", 4), last=True)
    assert len(queue) == 0
