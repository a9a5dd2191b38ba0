"""Hints that vLLM has on a request reach the daemon, with the chunks of its prompt."""

from typing import Any

from harness.waiting import eventually
from offload_node import OffloadNode, keys_of
from vllm.v1.kv_hints import KvHintAction, KvHintsEnvelope


def envelope(*actions: KvHintAction) -> KvHintsEnvelope:
    return KvHintsEnvelope("1.0", "m1", list(actions))


def action(kind: str, **payload: Any) -> KvHintAction:
    return KvHintAction("a1", f"kv.{kind}", "1.0", payload)


def counts(daemon: Any, table: str) -> dict[tuple[str, str], int]:
    found = daemon.status()["hints"][table]
    return {(one["action"], one["outcome"]): one["count"] for one in found}


def begin(node: OffloadNode, keys: Any, hints: Any) -> Any:
    request = node.begin(keys, kv_hints=hints)
    node.look_up(request, keys)
    node.step()
    return request


def test_fetch_of_a_prompt_brings_its_chunks_to_the_host(make_node: Any, nodes: Any) -> None:
    prefill = make_node(nodes[0].socket_path)
    decode = make_node(nodes[1].socket_path)
    keys = keys_of("hinted", 8)
    prefill.prefill(keys)
    before = nodes[1].status()["hints"]["pages"].get("fetch", 0)
    # As Dynamo has it: the daemon needs neither the endpoint nor the hashes.
    request = begin(decode, keys, envelope(action("fetch", endpoint="10.0.0.1:1", mode="pull")))
    eventually(
        lambda: nodes[1].status()["hints"]["pages"].get("fetch", 0) == before + 8,
        20,
        "the chunks to come",
    )
    assert decode.wait_found(request, keys) == 8
    decode.read(request, keys)
    decode.manager.on_request_finished(request)


def test_each_request_sends_its_hints_once(make_node: Any, nodes: Any) -> None:
    node = make_node(nodes[0].socket_path)
    keys = keys_of("once", 4)
    node.prefill(keys)
    kind = ("retain", "accepted")
    before = counts(nodes[0], "answered").get(kind, 0)
    request = begin(node, keys, envelope(action("retain", seconds=1)))
    assert node.wait_found(request, keys) == 4
    for _ in range(3):
        node.look_up(request, keys)
        node.step()
    node.manager.on_request_finished(request)
    node.tier._hints.wait_idle()
    assert counts(nodes[0], "answered")[kind] == before + 1


def test_unknown_and_malformed_hints_change_nothing_for_the_request(
    make_node: Any, nodes: Any
) -> None:
    node = make_node(nodes[0].socket_path)
    keys = keys_of("strange", 4)
    node.prefill(keys)
    strange = (
        envelope(action("fly")),
        envelope(action("retain", seconds=-1)),
        envelope(*[action("fetch")] * 100),
        envelope(action("fetch", keys=["x" * 300_000])),
        KvHintsEnvelope("9", "m", []),
    )
    for hints in strange:
        request = begin(node, keys, hints)
        assert node.wait_found(request, keys) == 4
        node.read(request, keys)
        node.manager.on_request_finished(request)
    node.tier._hints.wait_idle()
    assert counts(nodes[0], "answered")["unknown", "ignored"] >= 1
    assert nodes[0].status()["hints"]["malformed"] >= 2


def test_hints_about_chunks_that_vllm_has_itself_are_sent_at_the_end(
    make_node: Any, nodes: Any
) -> None:
    node = make_node(nodes[0].socket_path)
    keys = keys_of("own", 4)
    node.prefill(keys)
    request = node.begin(keys, kv_hints=envelope(action("retain", seconds=60)))
    node.step()
    before = nodes[0].status()["hints"]["retained_pages"]
    node.manager.on_request_finished(request)
    node.tier._hints.wait_idle()
    assert nodes[0].status()["hints"]["retained_pages"] == before + 4
