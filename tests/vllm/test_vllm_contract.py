"""vLLM's tiering manager with our tier: the right bytes or a miss, whatever the order of calls."""

from typing import Any

import pytest
from harness.waiting import eventually
from offload_node import CHUNK_BYTES, OffloadNode, content_of, eventually_found, keys_of
from vllm.v1.kv_offload.base import LookupResult


def test_chunks_that_one_engine_computes_another_loads(make_node: Any, nodes: Any) -> None:
    first, second = (make_node(nodes[place].socket_path) for place in (0, 1))
    keys = keys_of("shared", 12)
    first.prefill(keys)
    assert first.counted()[("store", "ok")] == 12
    eventually_found(second, keys)
    assert second.counted()[("load", "ok")] >= 12


def test_the_daemon_uses_the_slots_in_place(make_node: Any, nodes: Any) -> None:
    node: OffloadNode = make_node(nodes[0].socket_path, slots=32)
    node.prefill(keys_of("in place", 4))
    [worker] = [
        worker
        for worker in nodes[0].status()["workers"]
        if worker["region_bytes"] == 32 * CHUNK_BYTES
    ]
    assert worker["name"].startswith("vllm dp0 pid ")


@pytest.mark.parametrize("slots", [1, 3, 7])
def test_a_prompt_with_more_chunks_than_slots_goes_through_them(
    make_node: Any, nodes: Any, slots: int
) -> None:
    first, second = (make_node(nodes[place].socket_path, slots=slots) for place in (0, 1))
    keys = keys_of(f"long {slots}", 20)
    first.prefill(keys, at_once=slots)
    eventually(lambda: second.found(keys) == slots, 20, "as many chunks as there are slots")
    assert second.found(keys[10 : 10 + slots]) == slots


def test_chunks_that_left_the_host_memory_come_back(make_node: Any, nodes: Any) -> None:
    node: OffloadNode = make_node(nodes[0].socket_path, slots=6)
    keys = keys_of("evicted", 6)
    node.prefill(keys)
    node.prefill(keys_of("others", 6))
    assert node.found(keys) == 6
    node.evict_host_memory()
    node.paint(0xA5)
    assert node.found(keys) == 6


def test_two_requests_that_evict_each_others_chunks_both_end(make_node: Any, nodes: Any) -> None:
    node: OffloadNode = make_node(nodes[0].socket_path, slots=4)
    prompts = [keys_of(f"rival {number}", 4) for number in (0, 1)]
    for keys in prompts:
        node.prefill(keys)
    node.evict_host_memory()
    requests = [node.begin(keys) for keys in prompts]
    waiting = [0, 1]
    for _ in range(10_000):
        for number in list(waiting):
            if node.look_up(requests[number], prompts[number]) is not None:
                waiting.remove(number)
        node.step()
        if not waiting:
            break
    assert not waiting


def test_a_page_that_is_gone_is_a_miss_and_the_others_count(make_node: Any, nodes: Any) -> None:
    """The lookup finds all of them, and then one goes."""
    node: OffloadNode = make_node(nodes[0].socket_path)
    keys = keys_of("going", 8)
    node.prefill(keys)
    node.counted()
    node.evict_host_memory()
    node.paint(0xA5)
    request, other = node.begin(keys), node.begin(keys)
    node.wait_answered(request, keys)
    assert {node.tier.lookup(key, other) for key in keys} == {LookupResult.HIT}
    assert all(node.tier._slots._attached.client.remove([keys[5]]))
    assert node.wait_found(request, keys) == 5
    assert node.read(request, keys[:5]) == [content_of(key) for key in keys[:5]]
    assert node.wait_found(other, keys) == 5
    assert node.counted() == {("load", "ok"): 7, ("load", "absent"): 1}, "it was tried only once"
    assert node.look_up(request, keys[6:]) == 2, "the chunks behind it are in place"


def test_lookups_are_one_request_to_the_daemon(make_node: Any, stand_in: Any) -> None:
    node: OffloadNode = make_node(stand_in.path)
    keys = keys_of("batch", 16)
    assert node.found(keys) == 0
    [asked] = stand_in.asked(7)
    assert asked.keys == keys


def test_pages_travel_in_the_order_of_the_prompt(make_node: Any, stand_in: Any) -> None:
    """vLLM passes sets, and the daemon evicts the last pages of a prompt first."""
    node: OffloadNode = make_node(stand_in.path)
    keys = keys_of("order", 16)
    node.prefill(keys)
    first, second = stand_in.asked(5)
    assert (first.keys, first.parent) == (keys[:8], b"")
    assert (second.keys, second.parent) == (keys[8:], keys[7])


def test_a_reset_leaves_no_transfer_behind(make_node: Any, nodes: Any) -> None:
    node: OffloadNode = make_node(nodes[0].socket_path)
    keys = keys_of("reset", 16)
    node.prefill(keys)
    for _ in range(20):
        node.evict_host_memory()
        request = node.begin(keys)
        node.begin_loads(request, keys)
        node.evict_host_memory()
        node.paint(0x5A)
        node.manager.on_request_finished(request)
        node.step()
        assert bytes(node.memory.cast("B")).count(0x5A) == node.memory.nbytes


def test_shutdown_leaves_the_pages_in_the_cache(make_node: Any, nodes: Any) -> None:
    keys = keys_of("outlived", 4)
    first: OffloadNode = make_node(nodes[0].socket_path)
    first.prefill(keys)
    first.close()
    assert make_node(nodes[0].socket_path).found(keys) == 4


# --- events and metrics ---------------------------------------------------------------------------


def test_stored_chunks_have_events_if_the_entry_asks_for_them(make_node: Any, nodes: Any) -> None:
    keys = keys_of("events", 4)
    loud: OffloadNode = make_node(
        nodes[0].socket_path, tier={"enable_kv_events": True, "locality": "REMOTE"}
    )
    loud.prefill(keys)
    events = [event for event in loud.manager.take_events() if event.medium.value == "STORAGE"]
    assert [key for event in events for key in event.keys] == keys
    assert {(event.removed, event.locality.value) for event in events} == {(False, "REMOTE")}
    assert not [each for each in loud.manager.take_events() if each.medium.value == "STORAGE"]

    silent: OffloadNode = make_node(nodes[0].socket_path)
    silent.prefill(keys_of("no events", 4))
    assert not [each for each in silent.manager.take_events() if each.medium.value == "STORAGE"]


def test_every_metric_that_the_tier_reports_is_defined(make_node: Any, nodes: Any) -> None:
    from vllm.v1.kv_offload.tiering.spec import TieringOffloadingSpec

    node: OffloadNode = make_node(nodes[0].socket_path)
    node.prefill(keys_of("metrics", 2))
    stats = node.manager.get_stats()
    defined = TieringOffloadingSpec.build_metric_definitions(node.extra_config)
    for name, values in stats.data["data"].items():
        assert all(len(labels) == len(defined[name].labelnames) for labels in values), name
    assert "vllm:kv_offload_tiering_write_bytes" in stats.data["data"]


# --- the tier's entry -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ({"tennant": "acme"}, "did you mean 'tenant'"),
        ({"tenant": "a\nb"}, "tenant is 'a\\nb': printable text"),
        ({"timeout_s": 0}, "timeout_s is 0"),
        ({"timeout_s": "5"}, "timeout_s is '5'"),
        ({"locality": "NEAR"}, "NEAR"),
    ],
    ids=str,
)
def test_a_wrong_entry_stops_the_start(
    make_node: Any, nodes: Any, entry: dict[str, Any], text: str
) -> None:
    with pytest.raises(ValueError, match=text.replace("\\", "\\\\")):
        make_node(nodes[0].socket_path, tier=entry)
