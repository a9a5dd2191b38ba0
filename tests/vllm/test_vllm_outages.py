"""A daemon that is missing, dead, hung or restarted is a miss for vLLM, and never an error."""

import threading
import time
from typing import Any

import pytest
from harness import ipc_stand_in as ipc
from harness.clock import seconds
from harness.waiting import eventually
from offload_node import OffloadNode, content_of, keys_of
from vllm.v1.kv_offload.base import LookupResult


def test_the_engine_starts_first_and_shares_once_a_daemon_is_there(
    make_node: Any, one_daemon: Any
) -> None:
    node: OffloadNode = make_node(one_daemon[0].socket_path)
    node.prefill(keys_of("early", 4))
    assert node.counted() == {("store", "no_daemon"): 4}
    node.evict_host_memory()
    assert node.found(keys_of("early", 4)) == 0
    one_daemon.start()
    keys = keys_of("later", 4)

    def shared() -> bool:
        node.prefill(keys)
        node.evict_host_memory()
        return node.found(keys) == 4

    eventually(shared, 20, "the daemon's pages")


def test_killed_and_started_again(make_node: Any, one_daemon: Any) -> None:
    one_daemon.start()
    node: OffloadNode = make_node(one_daemon[0].socket_path)
    keys = keys_of("killed", 4)
    node.prefill(keys)
    one_daemon[0].kill()
    node.evict_host_memory()
    assert node.found(keys) == 0
    node.prefill(keys_of("while it is away", 4))
    one_daemon.start()

    def shared() -> bool:
        node.evict_host_memory()
        node.prefill(keys)
        node.evict_host_memory()
        return node.found(keys) == 4

    eventually(shared, 20, "pages after the restart")


def test_killed_while_chunks_are_loaded(make_node: Any, one_daemon: Any) -> None:
    """Each request ends, with the right bytes."""
    one_daemon.start()
    node: OffloadNode = make_node(one_daemon[0].socket_path, slots=512)
    keys = keys_of("killed in a load", 512)
    for _ in range(3):
        node.evict_host_memory()
        node.prefill(keys, at_once=512)
        node.evict_host_memory()
        node.paint(0xA5)
        request = node.begin(keys)
        killer = threading.Thread(target=one_daemon[0].kill)
        node.begin_loads(request, keys)
        killer.start()
        found = node.wait_found(request, keys)
        assert node.read(request, keys[:found]) == [content_of(key) for key in keys[:found]]
        killer.join()
        one_daemon.start()
        eventually(node.tier._slots._attached.client.ping, 20, "the daemon")


def test_the_scheduler_never_waits_for_a_frozen_daemon(make_node: Any, one_daemon: Any) -> None:
    """All these calls return while the daemon is frozen. It is thawed only then."""
    one_daemon.start()
    node: OffloadNode = make_node(one_daemon[0].socket_path, tier={"timeout_s": 60.0})
    node.prefill(keys_of("frozen", 4))
    one_daemon[0].freeze()
    try:
        keys = keys_of("meanwhile", 4)
        request = node.begin(keys)
        assert node.tier.lookup(keys[0], request) is LookupResult.RETRY
        node.step()
        node.compute(request, keys)
        node.step()
        node.manager.on_request_finished(request)
        assert not list(node.tier.get_finished_jobs())
    finally:
        one_daemon[0].thaw()
    node.settle()
    assert node.counted()[("store", "ok")] == 8


def test_a_frozen_daemon_delays_lookups_only_once(make_node: Any, one_daemon: Any) -> None:
    one_daemon.start()
    node: OffloadNode = make_node(one_daemon[0].socket_path, tier={"timeout_s": seconds(1.0)})
    node.prefill(keys_of("frozen", 4))
    one_daemon[0].freeze()
    try:
        for number in range(20):
            assert node.found(keys_of(f"prompt {number}", 4)) == 0
    finally:
        one_daemon[0].thaw()


# --- nothing is written into a slot after its load has ended --------------------------------------


# Of the load. The daemon must have begun to write before, on a machine that does other work, too.
LOAD_TIMEOUT_S = 1.0


def stuck_load(make_node: Any, stand_in: Any, keys: list[Any]) -> tuple[OffloadNode, Any]:
    """A node, and its request: the daemon has begun to write the load, without an end."""
    make_node(stand_in.path).prefill(keys)
    node: OffloadNode = make_node(stand_in.path, tier={"timeout_s": seconds(LOAD_TIMEOUT_S)})
    request = node.begin(keys)
    stand_in.hang_on, stand_in.writing = {ipc.GET}, True
    node.begin_loads(request, keys)
    assert stand_in.hanging.wait(seconds(10))
    return node, request


def test_a_load_that_the_daemon_may_still_write_has_not_ended(
    make_node: Any, stand_in: Any
) -> None:
    keys = keys_of("mid-write", 2)
    node, request = stuck_load(make_node, stand_in, keys)
    # Long past the timeout, other requests go on, and this one waits.
    others, until_s = 0, time.monotonic() + 2 * seconds(LOAD_TIMEOUT_S)
    while others < 50 or time.monotonic() < until_s:
        others += 1
        assert node.found(keys_of(f"other {others}", 2)) == 0
        assert node.look_up(request, keys) is None
    stand_in.hang_on = set()
    stand_in.go_on.set()
    node.wait_found(request, keys)


def test_a_reset_waits_for_the_end_of_the_write(make_node: Any, stand_in: Any) -> None:
    node, _ = stuck_load(make_node, stand_in, keys_of("mid-write", 2))
    reset = threading.Thread(target=node.evict_host_memory)
    reset.start()
    reset.join(seconds(0.5))
    assert reset.is_alive()
    stand_in.go_on.set()
    reset.join(seconds(20))
    assert not reset.is_alive()


def test_shutdown_in_the_middle_of_a_write_keeps_the_memory(make_node: Any, stand_in: Any) -> None:
    node, _ = stuck_load(make_node, stand_in, keys_of("mid-write", 2))
    with pytest.raises(RuntimeError, match="may still be writing"):
        node.close()
    assert node.memory.nbytes, "vLLM has not unmapped it"
    stand_in.go_on.set()
    node.tier._loads.wait_idle()
    node.tier.shutdown()
    node.manager.primary_tier.shutdown()
