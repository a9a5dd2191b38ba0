"""A small buffer that pages only pass through: its memory is reused as soon as `set` answers.

SGLang's buffer-only host memory requires this. After a successful answer the bytes are safe and all
nodes find them. A set that failed says so.
"""

import itertools
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest
from harness.background import Background
from harness.clock import seconds
from harness.cluster import Cluster, Daemon
from harness.fixtures import MakeCluster
from harness.pages import Pages
from harness.waiting import eventually

from peercache_client import Status

PAGE_BYTES = 65_536


class Transit(Pages):
    """A worker with room for eight pages. After every call it overwrites the buffer."""

    def set(self, keys: Sequence[bytes], sizes: Sequence[int] | None = None) -> list[Status]:
        statuses = super().set(keys, sizes)
        self.paint(0x5A)
        return statuses

    def get(self, keys: Sequence[bytes], sizes: Sequence[int] | None = None) -> list[Status]:
        statuses = super().get(keys, sizes)
        self.paint(0x5A)
        return statuses


@pytest.fixture
def transit() -> Iterator[Any]:
    with ExitStack() as stack:

        def make(daemon: Daemon, timeout_s: float = 2.0) -> Transit:
            made = Transit(daemon.socket_path, room_pages=8, timeout_s=seconds(timeout_s))
            stack.callback(made.client.close)
            return made

        yield make


def takes(transit: Transit, keys: list[bytes]) -> bool:
    return all(transit.set(keys))


def keys_of(name: str, number: int) -> list[bytes]:
    return [f"{name}/{number}/{page}".encode() for page in range(8)]


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
