"""A daemon that hangs during a write: the caller gets its pages back only after the write ends."""

import threading
from collections.abc import Iterator

import pytest
from harness import ipc_stand_in as ipc
from harness.clock import seconds
from harness.engine import PAGE_SIZE, Engine, mapping_of, tokens_of
from harness.ipc_stand_in import IpcStandIn
from harness.waiting import eventually

from peercache_client.connector import AsyncKVPrefetchQueue, Prefetched


@pytest.fixture
def engine(daemon: IpcStandIn) -> Iterator[Engine]:
    with Engine(daemon.path, timeout_s=seconds(0.2)) as one:
        yield one.register()


def hang_in_mid_write(daemon: IpcStandIn) -> None:
    daemon.hang_on, daemon.writing = {ipc.GET}, True


def wake_up(daemon: IpcStandIn) -> None:
    daemon.hang_on, daemon.writing = set(), False
    daemon.go_on.set()


def test_a_retrieve_ends_when_nothing_is_written_any_more(
    engine: Engine, daemon: IpcStandIn
) -> None:
    tokens = tokens_of("hung", 4)
    assert engine.store("w", tokens, range(4)) == 4 * PAGE_SIZE
    hang_in_mid_write(daemon)
    future = engine.connector.retrieve_kv_async("r", mapping_of(range(8, 12)), tokens)
    assert daemon.hanging.wait(seconds(10))
    # Longer than its timeout, its grace time and any fence.
    ended = threading.Event()
    future.add_done_callback(lambda _: ended.set())
    assert not ended.wait(seconds(1.5))
    wake_up(daemon)
    assert future.result(timeout=seconds(30)) == 0
    eventually(lambda: engine.connector.num_external_matched_tokens("m", tokens) == 4 * PAGE_SIZE)
    assert engine.retrieve("again", tokens, range(8, 12)) == 4 * PAGE_SIZE


def test_a_prefetch_queue_gives_the_pages_back_then(engine: Engine, daemon: IpcStandIn) -> None:
    tokens = tokens_of("queue", 4)
    assert engine.store("w", tokens, range(4)) == 4 * PAGE_SIZE
    queue = AsyncKVPrefetchQueue(
        engine.connector, lambda _, count: range(8, 8 + count), threshold_tokens=PAGE_SIZE
    )
    hang_in_mid_write(daemon)
    assert queue.add("r", tokens)
    done: list[Prefetched] = []

    def finished() -> bool:
        done.extend(queue.poll())
        return bool(done)

    eventually(lambda: finished() or daemon.hanging.is_set())
    assert not done
    wake_up(daemon)
    eventually(finished)
    assert [each.pages for each in done] == [list(range(8, 12))]
    assert not queue
    assert queue.in_flight_tokens == 0
