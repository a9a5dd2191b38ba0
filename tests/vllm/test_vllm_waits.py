"""A decode engine asks for a prompt before the prefill engine has stored it (`wait_s`)."""

import time
from typing import Any

import pytest
from harness.waiting import eventually
from offload_node import OffloadNode, keys_of
from vllm.v1.kv_offload.base import LookupResult

LONG = {"wait_s": 3}


def asks(node: OffloadNode, keys: Any) -> Any:
    """A request that knows of no chunk, and waits for all."""
    request = node.begin(keys)
    node.look_up(request, keys)

    def waits() -> bool:
        node.step()
        return keys[-1] in node.tier._lookups._waits

    eventually(waits, 20, "the daemon's first answer")
    return request


def test_a_request_waits_for_all_its_chunks(make_node: Any, nodes: Any) -> None:
    prefill = make_node(nodes[0].socket_path)
    decode = make_node(nodes[1].socket_path, tier=LONG)
    keys = keys_of("late", 8)
    request = asks(decode, keys)
    prefill.prefill(keys[:4])
    assert decode.look_up(request, keys) is None
    # Others do not wait with it.
    prefill.prefill(keys_of("there", 4))
    assert decode.found(keys_of("there", 4)) == 4
    prefill.prefill(keys)
    assert decode.wait_found(request, keys) == 8
    decode.read(request, keys)
    decode.manager.on_request_finished(request)
    assert not decode.tier._lookups._waits
    assert not decode.tier._lookups._waits_of


def test_a_wait_ends_with_what_has_come(make_node: Any, nodes: Any) -> None:
    prefill = make_node(nodes[0].socket_path)
    decode = make_node(nodes[1].socket_path, tier={"wait_s": 0.5})
    keys = keys_of("half", 8)
    request = asks(decode, keys)
    prefill.prefill(keys[:3])
    assert decode.wait_found(request, keys) == 3
    decode.manager.on_request_finished(request)
    assert decode.found(keys_of("nowhere", 4)) == 0


def test_a_request_that_ends_waits_no_more(make_node: Any, nodes: Any) -> None:
    decode = make_node(nodes[1].socket_path, tier=LONG)
    keys = keys_of("aborted", 4)
    decode.manager.on_request_finished(asks(decode, keys))
    assert not decode.tier._lookups._waits
    # Later requests ask anew.
    prefill = make_node(nodes[0].socket_path)
    prefill.prefill(keys)
    eventually(lambda: decode.found(keys) == 4, 20, "the chunks")


def test_an_aborted_request_ends_its_thread(make_node: Any, nodes: Any) -> None:
    decode = make_node(nodes[1].socket_path, tier=LONG)
    waiting = decode.tier._lookups._waiting
    request = asks(decode, keys_of("thread", 4))
    assert waiting.unfinished == 1
    began = time.monotonic()
    decode.manager.on_request_finished(request)
    eventually(lambda: waiting.unfinished == 0, 2, "the thread to be free")
    assert time.monotonic() - began < LONG["wait_s"] / 2


def test_who_shares_chunks_with_an_aborted_request_waits_on(make_node: Any, nodes: Any) -> None:
    prefill = make_node(nodes[0].socket_path)
    decode = make_node(nodes[1].socket_path, tier=LONG)
    keys = keys_of("shared", 8)
    first = asks(decode, keys)
    second = decode.begin(keys)
    assert decode.look_up(second, keys) is None
    decode.manager.on_request_finished(first)
    assert decode.look_up(second, keys) is None
    prefill.prefill(keys)
    assert decode.wait_found(second, keys) == 8
    decode.manager.on_request_finished(second)
    lookups = decode.tier._lookups
    assert not (lookups._waits or lookups._waits_of or lookups._requests_of or lookups._waited)


def test_a_dead_daemon_ends_the_wait(make_node: Any, one_daemon: Any) -> None:
    one_daemon.start()
    decode = make_node(one_daemon[0].socket_path, tier=LONG)
    keys = keys_of("dead", 4)
    request = asks(decode, keys)
    one_daemon[0].kill()
    assert decode.wait_found(request, keys) == 0


def test_a_page_that_came_and_went_is_a_miss(make_node: Any, nodes: Any) -> None:
    prefill = make_node(nodes[0].socket_path)
    decode = make_node(nodes[1].socket_path, tier=LONG)
    keys = keys_of("gone", 4)
    request = asks(decode, keys)
    prefill.prefill(keys)
    lookups = decode.tier._lookups
    eventually(lambda: lookups._waits[keys[0]].arrived, 20, "the chunks")
    decode.tier._lookups.mark_miss(keys[2:])
    assert decode.tier.lookup(keys[1], request) is LookupResult.HIT
    assert decode.tier.lookup(keys[2], request) is LookupResult.MISS


@pytest.mark.parametrize("wait_s", [-1, 3.5, "1", True])
def test_a_wrong_time_stops_the_start(make_node: Any, nodes: Any, wait_s: Any) -> None:
    with pytest.raises(ValueError, match=f"wait_s is {wait_s!r}: 0 or more and at most 3 seconds"):
        make_node(nodes[0].socket_path, tier={"wait_s": wait_s})
