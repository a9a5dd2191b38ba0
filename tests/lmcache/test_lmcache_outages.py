"""A daemon that is missing, dead, hung or restarted is a miss for LMCache, and never an error."""

import threading
import time
from typing import Any

import pytest
from harness import ipc_stand_in as ipc
from harness.clock import seconds
from harness.waiting import eventually
from storage_node import MODEL, StorageNode, keys_of


def test_lmcache_starts_first_and_shares_once_a_daemon_is_there(
    make_node: Any, one_daemon: Any
) -> None:
    node: StorageNode = make_node(one_daemon[0].socket_path)
    node.prefill(keys_of("early", 4))
    assert node.counted() == {"store": {"no_daemon": 4}}
    assert node.found(keys_of("early", 4)) == 0
    status = node.adapter.report_status()
    assert status["is_healthy"]
    assert status["daemon_error"]
    one_daemon.start()
    keys = keys_of("later", 4)

    def shared() -> bool:
        node.forget_l1()
        node.prefill(keys)
        return node.found(keys) == 4

    eventually(shared, 20, "the daemon's pages")
    assert not node.adapter.report_status()["daemon_error"]


def test_chunks_that_were_not_stored_stay_in_l1(make_node: Any, one_daemon: Any) -> None:
    """With this policy, LMCache drops chunks from L1 as soon as they are stored."""
    node: StorageNode = make_node(one_daemon[0].socket_path, store_policy="skip_l1")
    keys = keys_of("only in L1", 4)
    node.prefill(keys)
    assert node.end_prefetch(keys, node.begin_prefetch(keys), from_l2=False) == 4
    one_daemon.start()
    others = keys_of("in L2", 4)

    def stored() -> bool:
        node.forget_l1()
        node.prefill(others)
        used_bytes: int = node.manager.get_l1_usage()[0]
        return used_bytes == 0

    eventually(stored, 20, "L1 without the stored chunks")


@pytest.mark.parametrize("shared_memory", [True, False])
def test_killed_and_started_again(make_node: Any, one_daemon: Any, shared_memory: bool) -> None:
    one_daemon.start()
    node: StorageNode = make_node(one_daemon[0].socket_path, shared_memory=shared_memory)
    keys = keys_of("killed", 4)
    node.prefill(keys)
    assert node.found(keys) == 4
    one_daemon[0].kill()
    assert node.found(keys) == 0
    node.prefill(keys_of("while it is away", 4))
    one_daemon.start()

    def shared() -> bool:
        node.forget_l1()
        node.prefill(keys)
        return node.found(keys) == 4

    eventually(shared, 20, "pages after the restart")


def test_killed_while_chunks_are_loaded(make_node: Any, one_daemon: Any) -> None:
    """Each request ends, with the right bytes."""
    one_daemon.start()
    node: StorageNode = make_node(one_daemon[0].socket_path, l1_bytes=64 << 20)
    keys = keys_of("killed in a load", 512)
    for _ in range(3):
        node.forget_l1()
        node.prefill(keys)
        node.forget_l1()
        killer = threading.Thread(target=one_daemon[0].kill)
        handle = node.begin_prefetch(keys)
        killer.start()
        node.end_prefetch(keys, handle)
        killer.join()
        one_daemon.start()
        eventually(node.adapter._pages._models[MODEL].client.ping, 20, "the daemon")


def test_a_frozen_daemon_delays_requests_only_once(make_node: Any, one_daemon: Any) -> None:
    one_daemon.start()
    node: StorageNode = make_node(
        one_daemon[0].socket_path, params={"timeout_s": min(seconds(1.0), 60.0)}
    )
    node.prefill(keys_of("frozen", 4))
    one_daemon[0].freeze()
    try:
        assert node.found(keys_of("first", 4)) == 0
        began_s = time.monotonic()
        for number in range(20):
            assert node.found(keys_of(f"prompt {number}", 4)) == 0
        assert time.monotonic() - began_s < seconds(10), "each request waited"
        node.prefill(keys_of("meanwhile", 4))
    finally:
        one_daemon[0].thaw()


# --- nothing is written into L1 after a load has ended --------------------------------------------


# Of the load. The daemon must have begun to write before, on a machine that does other work, too.
LOAD_TIMEOUT_S = 1.0


def stuck_load(make_node: Any, stand_in: Any, keys: list[Any]) -> tuple[StorageNode, Any]:
    """A node, and its prefetch: the daemon has begun to write the load, without an end."""
    make_node(stand_in.path).prefill(keys)
    node: StorageNode = make_node(stand_in.path, params={"timeout_s": seconds(LOAD_TIMEOUT_S)})
    stand_in.hang_on, stand_in.writing = {ipc.GET}, True
    handle = node.begin_prefetch(keys)
    assert stand_in.hanging.wait(seconds(10))
    return node, handle


def test_a_load_that_the_daemon_may_still_write_has_not_ended(
    make_node: Any, stand_in: Any
) -> None:
    keys = keys_of("mid-write", 2)
    node, handle = stuck_load(make_node, stand_in, keys)
    # Long past the timeout, other requests go on, and this one waits.
    for number in range(10):
        other = keys_of(f"other {number}", 2)
        assert node.end_prefetch(other, node.begin_prefetch(other)) == 0
    assert not node.manager.wait_prefetch_status(handle, 2 * seconds(LOAD_TIMEOUT_S))
    stand_in.hang_on = set()
    stand_in.go_on.set()
    node.end_prefetch(keys, handle)


def test_closing_in_the_middle_of_a_write_returns(make_node: Any, stand_in: Any) -> None:
    node, _ = stuck_load(make_node, stand_in, keys_of("mid-write", 2))
    threads = node.adapter._loads
    closing = threading.Thread(target=node.close)
    closing.start()
    closing.join(seconds(20))
    assert not closing.is_alive()
    stand_in.go_on.set()
    assert threads.close(time.monotonic() + seconds(20)), "the load's thread ends afterwards"
