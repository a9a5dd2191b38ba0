"""The queues of many requests against a stand-in daemon: where prefetches begin, how requests end,
and cancelled calls."""

from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from harness import ipc_stand_in as ipc
from harness.clock import seconds
from harness.engine import PAGE_SIZE, Engine, mapping_of, tokens_of
from harness.ipc_stand_in import IpcStandIn
from harness.waiting import eventually

from peercache_client.connector import AsyncKVPrefetchQueue, AsyncKVStoreQueue, Prefetched, Stored
from peercache_client.connector.agreement import NOT_YET, reached


@pytest.fixture
def engine(daemon: IpcStandIn) -> Iterator[Engine]:
    with Engine(daemon.path, threads=1, chunk_pages=1, timeout_s=seconds(20)) as one:
        yield one.register()
        go_on(daemon)


def go_on(daemon: IpcStandIn) -> None:
    daemon.hang_on = set()
    daemon.go_on.set()


def prefetches(engine: Engine, threshold_tokens: int = PAGE_SIZE) -> AsyncKVPrefetchQueue:
    """A queue with an allocator that returns pages from 20 on."""
    return AsyncKVPrefetchQueue(
        engine.connector,
        lambda _, count: range(20, 20 + count),
        threshold_tokens=threshold_tokens,
    )


def polled(queue: Any) -> Any:
    """Polls until the only entry is done, and returns it."""
    done: list[Any] = []

    def enough() -> bool:
        done.extend(queue.poll())
        return bool(done)

    eventually(enough)
    assert len(done) == 1
    assert len(queue) == queue.in_flight_tokens == 0
    return done[0]


def futures_of(engine: Engine, monkeypatch: pytest.MonkeyPatch, method: str) -> list[Future[int]]:
    """Collects the futures that the connector returns to the queue from now on."""
    given = []
    call = getattr(engine.connector, method)

    def seen(*arguments: Any, **named: Any) -> Any:
        answer = call(*arguments, **named)
        given.append(answer[0] if isinstance(answer, tuple) else answer)
        return answer

    monkeypatch.setattr(engine.connector, method, seen)
    return given


# --- where a prefetch begins ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("computed_tokens", "first_page"), [(0, 0), (15, 0), (16, 1), (20, 1), (31, 1), (32, 2)]
)
def test_prefetch_starts_at_the_page_of_the_first_uncomputed_token(
    engine: Engine, computed_tokens: int, first_page: int
) -> None:
    tokens = tokens_of("begin", 6)
    engine.store("w", tokens, range(6))
    engine.blank()
    queue = prefetches(engine)
    assert queue.add("r", tokens, computed_tokens)
    done = polled(queue)
    assert (done.begin, done.end) == (first_page * PAGE_SIZE, 6 * PAGE_SIZE)
    assert engine.right_pages(tokens, done.pages, first=first_page) == 6 - first_page


def test_the_threshold_counts_from_the_begin_of_the_page(engine: Engine) -> None:
    tokens = tokens_of("threshold", 4)
    queue = prefetches(engine, threshold_tokens=3 * PAGE_SIZE)
    assert not queue.add("fewer", tokens, 2 * PAGE_SIZE)
    assert queue.add("enough", tokens, 2 * PAGE_SIZE - 1)


def test_a_negative_number_of_computed_tokens_is_refused(engine: Engine) -> None:
    queue = prefetches(engine)
    with pytest.raises(ValueError, match="computed_tokens is -16"):
        queue.add("r", tokens_of("negative", 4), -16)
    assert len(queue) == 0


# --- stores of a finished request -------------------------------------------------------------


def test_stores_go_on_when_the_request_has_finished(engine: Engine, daemon: IpcStandIn) -> None:
    tokens = tokens_of("finished", 64)
    engine.compute(tokens, range(64))
    queue = AsyncKVStoreQueue(engine.connector)
    daemon.hang_on = {ipc.SET}
    assert queue.add("w", mapping_of(range(64)), tokens, last=True)
    assert daemon.hanging.wait(seconds(20))
    engine.connector.finish_req("w")
    go_on(daemon)
    assert polled(queue) == Stored("w", 0, 64 * PAGE_SIZE, list(range(64)))


def test_a_stopped_prefetch_leaves_the_stores_of_its_request(
    engine: Engine, daemon: IpcStandIn
) -> None:
    tokens = tokens_of("both", 8)
    engine.compute(tokens, range(8))
    stores = AsyncKVStoreQueue(engine.connector)
    queue = prefetches(engine)
    daemon.hang_on = {ipc.SET}
    assert stores.add("r", mapping_of(range(8)), tokens, last=True)
    assert daemon.hanging.wait(seconds(20))
    assert queue.add("r", tokens)
    queue.stop("r")
    assert polled(queue).end == 0
    go_on(daemon)
    assert polled(stores).end == 8 * PAGE_SIZE


# --- cancelled futures ------------------------------------------------------------------------


def test_a_cancelled_call_has_reached_nothing() -> None:
    future: Future[int] = Future()
    assert reached(future, 48) == NOT_YET
    assert future.cancel()
    assert reached(future, 48) == 48


def test_a_cancelled_match_is_a_miss(
    engine: Engine, daemon: IpcStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = tokens_of("match", 4)
    engine.store("w", tokens, range(4))
    daemon.hang_on = {ipc.GET}
    engine.connector.retrieve_kv_async("other", mapping_of([0]), tokens)
    assert daemon.hanging.wait(seconds(20))
    given = futures_of(engine, monkeypatch, "num_external_matched_tokens_async")
    queue = prefetches(engine)
    assert queue.add("r", tokens, PAGE_SIZE)
    assert given[0].cancel()
    assert polled(queue) == Prefetched("r", PAGE_SIZE, PAGE_SIZE, [])


def test_a_cancelled_retrieve_gives_the_pages_back(
    engine: Engine, daemon: IpcStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = tokens_of("retrieve", 4)
    engine.store("w", tokens, range(4))
    given = futures_of(engine, monkeypatch, "retrieve_kv_async")
    matched = futures_of(engine, monkeypatch, "num_external_matched_tokens_async")
    queue = prefetches(engine)
    assert queue.add("r", tokens)
    assert matched[0].result(timeout=seconds(20)) == len(tokens)
    daemon.hang_on = {ipc.GET}
    engine.connector.retrieve_kv_async("other", mapping_of([0]), tokens)
    assert daemon.hanging.wait(seconds(20))
    assert queue.poll() == []
    assert given[-1].cancel()
    assert polled(queue) == Prefetched("r", 0, 0, [20, 21, 22, 23])


def test_a_cancelled_store_gives_the_pages_back(
    engine: Engine, daemon: IpcStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = tokens_of("store", 4)
    daemon.hang_on = {ipc.SET}
    engine.connector.store_kv_async("other", mapping_of([0]), tokens)
    assert daemon.hanging.wait(seconds(20))
    given = futures_of(engine, monkeypatch, "store_kv_async")
    queue = AsyncKVStoreQueue(engine.connector)
    assert queue.add("w", mapping_of(range(4)), tokens, last=True)
    assert given[0].cancel()
    assert polled(queue) == Stored("w", 0, 0, [0, 1, 2, 3])
    # Its end is reported nevertheless.
    assert engine.connector.finish_req("w").done()
