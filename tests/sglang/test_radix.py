"""SGLang's radix cache on two nodes: one prefills and ends, the other decodes."""

from contextlib import ExitStack
from typing import Any

import pages
import pytest
import torch
from controller_node import Shape
from radix_node import RadixNode

SHAPES = {
    "mha page_first": Shape(),
    "mha page_first_direct": Shape(layout="page_first_direct"),
    "mha page_head": Shape(layout="page_head"),
    "mha layer_first": Shape(layout="layer_first"),
    "mla page_first": Shape(kind="mla"),
    "mla page_first_direct": Shape(kind="mla", layout="page_first_direct"),
}


def same(one: list[Any], other: list[Any]) -> bool:
    return all(map(torch.equal, one, other))


@pytest.mark.parametrize("name", SHAPES)
def test_decode_loads_the_pages_prefill_wrote(nodes: Any, name: str) -> None:
    shape = SHAPES[name]
    tokens = pages.tokens(name, 7 * 16)
    with RadixNode(nodes[0].socket_path, shape, model=name) as prefill:
        prefill.prefill(tokens)
    with RadixNode(nodes[1].socket_path, shape, model=name) as decode:
        assert decode.fetch(tokens + pages.tokens("more", 40)) == len(tokens)
        assert same(decode.load(tokens), decode.expected(tokens))


def test_continued_conversation_fetches_only_new_pages(nodes: Any) -> None:
    shape = Shape(tokens=1024)
    with ExitStack() as stack:
        one, other = (
            stack.enter_context(
                RadixNode(
                    nodes[i].socket_path,
                    shape,
                    model="turns",
                    hicache_storage_pass_prefix_keys=True,
                )
            )
            for i in (0, 1)
        )
        tokens: list[int] = []
        for turn in range(4):
            tokens = tokens + pages.tokens(f"turn {turn}", 64)
            one.prefill(tokens)
            assert other.fetch(tokens) == 64
            assert same(other.load(tokens), other.expected(tokens))


def test_two_prompts_with_one_beginning_share_it(nodes: Any) -> None:
    head = pages.tokens("head", 64)
    with ExitStack() as stack:
        one, other = (
            stack.enter_context(RadixNode(nodes[i].socket_path, Shape(), model="head"))
            for i in (0, 1)
        )
        one.prefill(head + pages.tokens("left", 32))
        right = head + pages.tokens("right", 32)
        assert other.fetch(right) == 64
        assert same(other.load(right), other.expected(head))
