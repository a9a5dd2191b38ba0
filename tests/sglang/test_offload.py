"""`--disaggregation-decode-enable-offload-kvcache`: a decode node stores what it generates.

The prefill node stores the full pages of the prompt. The decode node continues their chain of
hashes, and writes through the backend while it decodes. It never reads."""

from collections.abc import Iterator
from typing import Any

import pages
import pytest
import torch
from controller_node import Shape
from decode_offload_node import OffloadNode
from harness.cluster import Cluster
from harness.fixtures import FAST
from radix_node import RadixNode


@pytest.fixture(scope="module", autouse=True)
def process_group() -> Iterator[None]:
    torch.distributed.init_process_group(
        "gloo", store=torch.distributed.HashStore(), rank=0, world_size=1
    )
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("kind", ["mha", "mla"])
@pytest.mark.parametrize("more", [0, 5], ids=["whole pages", "a page of both"])
def test_the_next_turn_finds_prompt_and_answer_anywhere(nodes: Any, kind: str, more: int) -> None:
    shape = Shape(kind=kind)
    model = f"offload {kind} {more}"
    prompt = pages.tokens(f"{model} prompt", 3 * 16 + more)
    answer = pages.tokens(f"{model} answer", 4 * 16 - more + 1)  # the last token has no KV
    whole = prompt + answer
    with RadixNode(nodes[0].socket_path, shape, model=model) as prefill:
        prefill.prefill(prompt[: 3 * 16])
        kv = prefill.expected(whole[:-1])
    with OffloadNode(nodes[1].socket_path, shape, model) as decode:
        free = decode.host.available_size()
        slots = decode.allocator.available_size()
        req = decode.start(prompt, kv)
        decode.generate(req, answer[:20], kv, end=False)
        decode.until(decode.quiet)  # an aborted or endless answer is stored so far, too
        with RadixNode(nodes[0].socket_path, shape, model=model) as next_turn:
            assert next_turn.fetch(whole) == (len(prompt) + 19) // 16 * 16
        decode.generate(req, answer[20:], kv, end=True)
        decode.until(decode.quiet)
        assert decode.host.available_size() == free, "every host page is free again"
        assert decode.allocator.available_size() == slots, "and every device slot"
    for daemon in nodes:
        with RadixNode(daemon.socket_path, shape, model=model) as next_turn:
            assert next_turn.fetch(whole) == 7 * 16
            found = next_turn.bring(whole)
            assert len(found) == 7 * 16
            for layer, expected in zip(next_turn._layers(), kv, strict=True):
                assert torch.equal(layer[found], expected[: 7 * 16])


def test_offloads_end_without_a_daemon_and_free_their_memory() -> None:
    with Cluster(1, options=FAST) as cluster:
        cluster.start()
        shape = Shape()
        prompt, answer = pages.tokens("lost prompt", 32), pages.tokens("lost answer", 49)
        with RadixNode(cluster[0].socket_path, shape, model="lost") as invents:
            kv = invents.expected((prompt + answer)[:-1])
        with OffloadNode(cluster[0].socket_path, shape, "lost") as decode:
            free = decode.host.available_size()
            slots = decode.allocator.available_size()
            cluster[0].kill()
            req = decode.start(prompt, kv)
            decode.generate(req, answer, kv, end=True)
            decode.until(decode.quiet)
            assert decode.host.available_size() == free
            assert decode.allocator.available_size() == slots
