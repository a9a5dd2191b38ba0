"""`batch_exists(wait_s=...)`: a decode host asks before the prefill host has stored the pages."""

import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

import pytest
from harness.cluster import Cluster, Daemon
from harness.fixtures import MakeCluster
from harness.pages import keys_of
from harness.waiting import eventually

from peercache_client import Client, Status

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


def test_pages_that_were_waited_for_are_held(nodes: Cluster) -> None:
    keys = keys_of("held", PAGES)
    with client_of(nodes[1]) as decode, client_of(nodes[0]) as prefill:
        answer = asked(lambda: decode.batch_exists(keys, wait_s=LONG_S, hold_s=LONG_S))
        store(prefill, keys)
        assert answer.result(LONG_S) == PAGES
        assert nodes[0].status()["holds"]["pages"] >= PAGES


def test_many_wait_and_other_calls_go_on(nodes: Cluster) -> None:
    keys = keys_of("many", 40)
    with client_of(nodes[1]) as decode, client_of(nodes[0]) as prefill:
        answers = [asked(lambda key=key: decode.batch_exists([key], wait_s=LONG_S)) for key in keys]  # type: ignore[misc]
        eventually(lambda: nodes[1].status()["ipc"]["connections"] >= len(keys))
        store(decode, keys_of("meanwhile", PAGES))
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
