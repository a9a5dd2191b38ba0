"""A small buffer that pages only pass through: its memory is reused as soon as `set` answers.

SGLang's buffer-only host memory requires this. After a successful answer the bytes are safe and all
nodes find them. A set that failed says so.
"""

import itertools
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest
from harness.background import Background
from harness.clock import seconds
from harness.cluster import Cluster, Daemon
from harness.content import Content
from harness.fixtures import MakeCluster
from harness.waiting import eventually

from peercache_client import Client, Region, Status

PAGE_BYTES = 65_536


class Transit:
    """A worker with room for eight pages. After every call it overwrites the buffer."""

    def __init__(self, daemon: Daemon, pages: int = 8, timeout_s: float = 2.0) -> None:
        self.client = Client(daemon.socket_path, namespace="transit", timeout_s=seconds(timeout_s))
        self.region: Region = self.client.alloc(pages * PAGE_BYTES)
        self.offsets = range(0, pages * PAGE_BYTES, PAGE_BYTES)
        self._content = Content()

    def set(self, keys: list[bytes]) -> list[Status]:
        for key, offset in zip(keys, self.offsets, strict=False):
            self._content.write(key, self.region.view[offset : offset + PAGE_BYTES])
        statuses = self.client.batch_set(keys, self.region, self.offsets[: len(keys)], PAGE_BYTES)
        self.paint()
        return statuses

    def get(self, keys: list[bytes]) -> list[Status]:
        statuses = self.client.batch_get(keys, self.region, self.offsets[: len(keys)], PAGE_BYTES)
        for key, offset, status in zip(keys, self.offsets, statuses, strict=False):
            page = self.region.view[offset : offset + PAGE_BYTES]
            if status:
                wrong = self._content.mismatch(key, page)
                assert wrong is None, f"wrong bytes were served: {wrong}"
        self.paint()
        return statuses

    def paint(self) -> None:
        self.region.view[:] = b"\x5a" * len(self.region.view)


@pytest.fixture
def transit() -> Iterator[Any]:
    with ExitStack() as stack:

        def make(daemon: Daemon, **options: Any) -> Transit:
            made = Transit(daemon, **options)
            stack.callback(made.client.close)
            return made

        yield make


def takes(transit: Transit, keys: list[bytes]) -> bool:
    return all(transit.set(keys))


def keys_of(name: str, number: int) -> list[bytes]:
    return [f"{name}/{number}/{page}".encode() for page in range(8)]


def test_set_pages_are_found_everywhere_after_their_buffer_is_reused(
    three_nodes: Cluster, transit: Any
) -> None:
    """The first lookup after the answer must succeed on every node, without a retry."""
    writer = transit(three_nodes[0])
    readers = [transit(node) for node in three_nodes.daemons]
    for number in range(40):
        keys = keys_of("found", number)
        assert all(writer.set(keys))
        reader = readers[number % 3]
        assert reader.client.batch_exists(keys) == len(keys)
        assert all(reader.get(keys))


def test_many_buffers_share_a_daemon_and_nothing_is_mixed_up(
    three_nodes: Cluster, transit: Any
) -> None:
    writers = [transit(three_nodes[0]) for _ in range(3)]
    reader = transit(three_nodes[1])
    counters = [itertools.count() for _ in writers]

    def write(which: int) -> None:
        assert all(writers[which].set(keys_of(f"mixed {which}", next(counters[which]) % 30)))

    with ExitStack() as stack:
        threads = [
            stack.enter_context(Background(partial(write, which))) for which in range(len(writers))
        ]
        for thread in threads:
            thread.wait_rounds(30)
        for which in range(len(writers)):
            for number in range(30):
                assert all(reader.get(keys_of(f"mixed {which}", number)))


def test_timed_out_set_does_not_store_bytes_written_afterwards(
    make_cluster: MakeCluster, transit: Any
) -> None:
    """The daemon freezes with the request, and resumes when the memory has other bytes."""
    # The pauses may add up if the daemon sends no heartbeat in between, so the TTL is long.
    cluster = make_cluster(2, member_ttl_s=15)
    writer = transit(cluster[0], timeout_s=0.5)
    reader = transit(cluster[1])
    assert all(writer.set(keys_of("first", 0)))
    for number in range(5):
        keys = keys_of("late", number)
        cluster[0].freeze()
        assert not any(writer.set(keys))  # this also overwrites its memory
        cluster[0].thaw()
        eventually(partial(takes, writer, keys_of("next", number)))
        # The pages are absent or right, because `get` checks every byte.
        reader.get(keys)
        writer.get(keys)
        assert all(reader.get(keys_of("next", number)))


def test_full_daemon_evicts_and_an_oversized_page_is_too_large(
    make_cluster: MakeCluster, transit: Any
) -> None:
    cluster = make_cluster(1, pool_size="8MiB")
    writer = transit(cluster[0])
    for number in range(64):  # four times the pool's capacity
        assert all(writer.set(keys_of("full", number)))
    assert all(writer.get(keys_of("full", 63)))
    whole = writer.client.alloc(16 << 20)
    statuses = writer.client.batch_set([b"huge", b"small"], whole, [0, 0], [16 << 20, PAGE_BYTES])
    assert statuses == [Status.too_large, Status.ok]


def test_sets_fail_while_the_daemon_is_down_and_work_after_restart(
    make_cluster: MakeCluster, transit: Any
) -> None:
    cluster = make_cluster(1)
    writer = transit(cluster[0])
    assert all(writer.set(keys_of("away", 0)))
    cluster[0].kill()
    for number in range(1, 4):
        assert set(writer.set(keys_of("away", number))) == {Status.no_daemon}
    cluster.start_again(cluster[0])
    eventually(partial(takes, writer, keys_of("away", 4)))
    assert all(writer.get(keys_of("away", 4)))
    assert not any(writer.get(keys_of("away", 1)))
