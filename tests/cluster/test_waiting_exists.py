"""`batch_exists(wait_s=...)`: a decode host asks before the prefill host has stored the pages."""

import asyncio
import math
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import pytest
from harness.cluster import Cluster, Daemon
from harness.disks import disk_options, wait_written
from harness.fixtures import MakeCluster
from harness.pages import keys_of
from harness.waiting import eventually

from peercache_client import AsyncClient, Cancel, Client, Status
from peercached.admin.client import AdminClient

PAGES = 8
PAGE = 4096
LONG_S = 30.0
LOOKS_AGAIN_S = 0.5  # kPauseMax in native/engine/paths/exists_path.cc


@pytest.fixture
def nodes(three_nodes: Cluster) -> Cluster:
    return three_nodes


def client_of(daemon: Daemon) -> Client:
    return Client(daemon.socket_path, "waiting", timeout_s=20)


def store(client: Client, keys: list[bytes]) -> None:
    assert client.batch_set_buffers(keys, [bytes(PAGE)] * len(keys)) == [Status.ok] * len(keys)


def asked(ask: Callable[[], int]) -> "Future[int]":
    answer: Future[int] = Future()
    threading.Thread(target=lambda: answer.set_result(ask()), daemon=True).start()
    return answer


@pytest.mark.parametrize("place", [0, 1], ids=["its own node", "another node"])
def test_it_is_answered_when_the_last_page_comes(nodes: Cluster, place: int) -> None:
    late = []
    with client_of(nodes[0]) as prefill, client_of(nodes[place]) as decode:
        for turn in range(9):
            keys = keys_of(f"turn {place} {turn}", PAGES)
            answer = asked(lambda keys=keys: decode.batch_exists(keys, wait_s=LONG_S))  # type: ignore[misc]
            for begin in range(0, PAGES, 2):
                assert not answer.done()
                store(prefill, keys[begin : begin + 2])
            stored = time.monotonic()
            assert answer.result(LONG_S) == PAGES
            late.append(time.monotonic() - stored)
    # By the arrival, not by looking again. Some calls may be late on a busy machine.
    assert statistics.median(late) < LOOKS_AGAIN_S / 2


def test_a_node_without_all_records_asks_the_owners(make_cluster: MakeCluster) -> None:
    nodes = make_cluster(3, directory_copies=0)
    keys = keys_of("owners", PAGES)
    with client_of(nodes[0]) as prefill, client_of(nodes[1]) as decode:
        answer = asked(lambda: decode.batch_exists(keys, wait_s=LONG_S))
        store(prefill, keys[:4])
        assert not answer.done()
        store(prefill, keys[4:])
        assert answer.result(LONG_S) == PAGES


def test_it_waits_only_for_the_wanted_keys_and_only_so_long(nodes: Cluster) -> None:
    keys = keys_of("wanted", PAGES)
    with client_of(nodes[1]) as decode, client_of(nodes[0]) as prefill:
        began = time.monotonic()
        assert decode.batch_exists(keys, wait_s=0.2) == 0
        assert time.monotonic() - began >= 0.2
        store(prefill, keys[:3])
        assert decode.batch_exists(keys, wait_s=LONG_S, wait_for=3) == 3
        assert decode.batch_exists(keys, wait_s=LONG_S, wait_for=0) == 3
        # A key that can never come.
        assert decode.batch_exists([*keys[:3], b""], wait_s=LONG_S) == 3
        assert decode.batch_exists([], wait_s=LONG_S) == 0
        for wrong in (-1.0, math.nan):
            with pytest.raises(ValueError, match="give 0 or more seconds"):
                decode.batch_exists(keys, wait_s=wrong)
        with pytest.raises(TypeError, match="cancel is 1: give a"):
            decode.batch_exists(keys, wait_s=LONG_S, cancel=1)  # type: ignore[arg-type]


def test_pages_that_were_waited_for_are_held(nodes: Cluster) -> None:
    keys = keys_of("held", PAGES)
    with client_of(nodes[1]) as decode, client_of(nodes[0]) as prefill:
        answer = asked(lambda: decode.batch_exists(keys, wait_s=LONG_S, hold_s=LONG_S))
        store(prefill, keys)
        assert answer.result(LONG_S) == PAGES
        assert nodes[0].status()["holds"]["pages"] >= PAGES


def test_many_wait_and_leave_connections_for_other_calls(nodes: Cluster) -> None:
    keys = keys_of("crowd", 80)
    with client_of(nodes[1]) as decode, client_of(nodes[0]) as prefill:
        answers = [asked(lambda key=key: decode.batch_exists([key], wait_s=LONG_S)) for key in keys]  # type: ignore[misc]
        eventually(lambda: nodes[1].status()["ipc"]["connections"] >= 32)
        store(decode, keys_of("meanwhile", PAGES))
        assert decode.batch_exists(keys, timeout_s=5) == 0
        assert nodes[1].status()["ipc"]["connections"] <= 32 + 4
        store(prefill, keys)
        assert [answer.result(LONG_S) for answer in answers] == [1] * len(keys)


def test_a_page_of_a_node_that_was_away_is_found(make_cluster: MakeCluster) -> None:
    """No record comes anew when a suspect node is back."""
    nodes = make_cluster(3)
    keys = keys_of("away", PAGES)
    with client_of(nodes[1]) as decode, client_of(nodes[0]) as prefill:
        store(prefill, keys)
        nodes[0].freeze()
        eventually(lambda: decode.batch_exists(keys) == 0)
        answer = asked(lambda: decode.batch_exists(keys, wait_s=LONG_S))
        nodes[0].thaw()
        assert answer.result(2 * LONG_S) == PAGES


def test_a_clear_ends_the_wait(nodes: Cluster) -> None:
    keys = keys_of("cleared", 2)
    with client_of(nodes[1]) as decode, client_of(nodes[0]) as other:
        store(other, keys[:1])
        answer = asked(lambda: decode.batch_exists(keys, wait_s=LONG_S))
        # The first clear may come before the question.
        eventually(lambda: other.clear() and answer.done(), LONG_S / 2)
        assert answer.result() == 0


def test_a_worker_that_dies_waits_no_more(make_cluster: MakeCluster) -> None:
    [daemon] = make_cluster(1).daemons
    script = (
        "import sys; from peercache_client import Client\n"
        f"Client(sys.argv[1]).batch_exists([b'nowhere'], wait_s={LONG_S})"
    )
    worker = subprocess.Popen([sys.executable, "-c", script, str(daemon.socket_path)])
    eventually(lambda: daemon.status()["workers"])
    worker.kill()
    worker.wait()
    eventually(lambda: not daemon.status()["workers"], LONG_S / 2)


def test_a_stop_ends_the_wait(make_cluster: MakeCluster) -> None:
    [daemon] = make_cluster(1).daemons
    with client_of(daemon) as client:
        answer = asked(lambda: client.batch_exists([b"nowhere"], wait_s=LONG_S))
        eventually(lambda: daemon.status()["ipc"]["connections"] > 0)
        assert daemon.stop() == 0
        assert answer.result(5) == 0


def test_a_question_that_is_asked_again_counts_once(nodes: Cluster) -> None:
    keys = keys_of("counted", PAGES)

    def demand() -> tuple[int, ...]:
        counted = nodes[1].status()["demand"]
        return tuple(counted[name] for name in ("asked", "tokens_asked", "tokens_found"))

    with client_of(nodes[1]) as decode, client_of(nodes[0]) as prefill:
        store(prefill, keys[:2])
        eventually(lambda: decode.batch_exists(keys[:2]) == 2)
        before = demand()
        assert sum(decode.contains(keys, page_tokens=16)) == 2
        answer = asked(lambda: decode.batch_exists(keys, wait_s=LONG_S, page_tokens=16, again=True))
        # Another call needs a second connection as soon as this one waits.
        eventually(lambda: decode.ping() and nodes[1].status()["ipc"]["connections"] >= 2)
        store(prefill, keys[2:])
        assert answer.result(LONG_S) == PAGES
        grown = tuple(now - then for now, then in zip(demand(), before, strict=True))
        assert grown == (PAGES, PAGES * 16, PAGES * 16)


def test_close_and_cancel_end_waits(nodes: Cluster) -> None:
    decode = client_of(nodes[1])
    cancel = Cancel()
    cancelled = asked(lambda: decode.batch_exists([b"never"], wait_s=LONG_S, cancel=cancel))
    # More than may wait at once: the others wait for their turn.
    others = [asked(lambda: decode.batch_exists([b"never"], wait_s=LONG_S)) for _ in range(40)]
    eventually(lambda: nodes[1].status()["ipc"]["connections"] >= 32)
    began = time.monotonic()
    cancel.cancel()
    assert cancelled.result(LONG_S / 2) == 0
    assert decode.ping()
    assert not any(other.done() for other in others)
    decode.close()
    assert [other.result(LONG_S / 2) for other in others] == [0] * len(others)
    assert time.monotonic() - began < LONG_S / 2


def test_waits_of_an_async_client_are_cancelled_and_block_no_other_call(nodes: Cluster) -> None:
    async def main() -> None:
        client = AsyncClient(nodes[1].socket_path, "waiting", timeout_s=20, threads=2)
        cancel = Cancel()
        waits = [
            asyncio.create_task(client.batch_exists([b"never"], wait_s=LONG_S, cancel=cancel))
            for _ in range(6)
        ]
        await asyncio.sleep(0)
        assert await client.ping()
        waits[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await waits[0]
        assert not cancel.cancelled, "it is of the other calls, too"
        assert not any(wait.done() for wait in waits[1:])
        with pytest.raises(TypeError, match="cancel is 1: give a"):
            await client.batch_exists([b"never"], wait_s=LONG_S, cancel=1)  # type: ignore[arg-type]
        cancel.cancel()
        assert await asyncio.gather(*waits[1:]) == [0] * 5
        waits = [asyncio.create_task(client.batch_exists([b"never"], wait_s=LONG_S))]
        await asyncio.sleep(0)
        await client.close()
        assert await waits[0] == 0

    began = time.monotonic()
    asyncio.run(main())
    assert time.monotonic() - began < LONG_S / 2


def test_many_coroutines_that_wait_are_cancelled_together(nodes: Cluster) -> None:
    """As one ends, its thread begins the next, which may be cancelled while it connects."""

    async def main() -> None:
        for _ in range(5):
            async with AsyncClient(nodes[1].socket_path, "waiting", timeout_s=20) as client:
                waits = [
                    asyncio.create_task(client.batch_exists([b"never"], wait_s=LONG_S))
                    for _ in range(16)
                ]
                await asyncio.to_thread(
                    eventually, lambda: nodes[1].status()["ipc"]["connections"] >= client._threads
                )
                for wait in waits:
                    wait.cancel()
                ended = await asyncio.gather(*waits, return_exceptions=True)
                assert {type(each) for each in ended} == {asyncio.CancelledError}

    began = time.monotonic()
    asyncio.run(main())
    assert time.monotonic() - began < LONG_S / 2


def test_one_cancel_ends_all_its_calls(nodes: Cluster) -> None:
    """More than may wait at once."""
    cancel = Cancel()
    with client_of(nodes[1]) as decode:
        answers = [
            asked(lambda: decode.batch_exists([b"never"], wait_s=LONG_S, cancel=cancel))
            for _ in range(40)
        ]
        eventually(lambda: nodes[1].status()["ipc"]["connections"] >= 32)
        assert not any(answer.done() for answer in answers)
        began = time.monotonic()
        cancel.cancel()
        assert [answer.result(LONG_S / 2) for answer in answers] == [0] * len(answers)
        assert decode.batch_exists([b"never"], wait_s=LONG_S, cancel=cancel) == 0
        assert time.monotonic() - began < LONG_S / 2


@pytest.mark.parametrize("place", [0, 1], ids=["its own node", "another node"])
def test_a_wait_with_a_hold_brings_pages_from_a_disk(
    make_cluster: MakeCluster, tmp_path: Path, place: int
) -> None:
    nodes = make_cluster(2, each=disk_options(tmp_path, "a"))
    keys = keys_of("on disk", PAGES)
    with client_of(nodes[0]) as prefill, client_of(nodes[place]) as decode:
        store(prefill, keys)
        wait_written(nodes[0])
        with AdminClient(str(nodes[0].admin_path)) as admin:
            assert admin.evict("waiting", keys[2:]).pages == PAGES - 2
        eventually(lambda: decode.batch_exists(keys) == PAGES)
        with AdminClient(str(nodes[0].admin_path)) as admin:
            admin.evict("waiting", keys[2:])  # what this question has promoted
        assert decode.batch_exists(keys, wait_s=LONG_S, hold_s=LONG_S) == PAGES
        assert nodes[0].status()["holds"]["pages"] >= PAGES
