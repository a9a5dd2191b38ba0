"""A daemon that hangs in the middle of a write: the connector says that the memory is lost."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import ipc_stand_in as ipc
from harness.clock import seconds
from harness.engine import PAGE_SIZE, Engine, mapping_of, tokens_of
from harness.ipc_stand_in import IpcStandIn
from harness.waiting import eventually

import peercache_client.connection
from peercache_client.connector import AsyncKVPrefetchQueue, MemoryLost, Prefetched


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[IpcStandIn]:
    with IpcStandIn(tmp_path / "d.sock") as stand_in:
        yield stand_in
        stand_in.go_on.set()


@pytest.fixture
def engine(daemon: IpcStandIn, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    monkeypatch.setattr(peercache_client.connection, "GRACE_S", seconds(0.05))
    monkeypatch.setattr(peercache_client.connection, "SILENCE_TIMEOUT_S", seconds(0.1))
    with Engine(daemon.path, timeout_s=seconds(0.2)) as one:
        yield one.register()


def hang_in_mid_write(daemon: IpcStandIn) -> None:
    daemon.hang_on, daemon.writing = {ipc.GET}, True


def test_the_future_of_the_retrieve_says_so_and_so_do_later_ones(
    engine: Engine, daemon: IpcStandIn
) -> None:
    tokens = tokens_of("lost", 4)
    assert engine.store("w", tokens, range(4)) == 4 * PAGE_SIZE
    hang_in_mid_write(daemon)
    future, _ = engine.connector.retrieve_kv_async("r", mapping_of(range(8, 12)), tokens)
    with pytest.raises(MemoryLost, match="middle of a page"):
        future.result(timeout=seconds(30))
    daemon.hang_on, daemon.writing = set(), False
    daemon.go_on.set()
    eventually(lambda: engine.connector.num_external_matched_tokens("m", tokens) == 4 * PAGE_SIZE)
    # The daemon is well again; the memory is not, for it may have been written at any time since.
    for call in (engine.connector.retrieve_kv_async, engine.connector.store_kv_async):
        future, _ = call("again", mapping_of(range(4)), tokens)
        with pytest.raises(MemoryLost):
            future.result(timeout=seconds(30))


def test_a_prefetch_queue_tells_that_there_are_no_pages_to_free(
    engine: Engine, daemon: IpcStandIn
) -> None:
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

    eventually(finished)
    assert done == [Prefetched("r", 0, 0, [], lost=True)]
    assert not queue
    assert queue.in_flight_tokens == 0
