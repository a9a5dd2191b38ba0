"""A node with the linker and a node with HiCache share pages, in both directions."""

from typing import Any

import pages
import pytest
import torch
from controller_node import Shape
from radix_node import RadixNode

SHAPES = {
    "mha page_first": Shape(),
    "mha page_first_direct": Shape(layout="page_first_direct"),
    "mha asymmetric": Shape(v_head_dim=16),
    "mla page_first": Shape(kind="mla"),
    "mla page_first_direct": Shape(kind="mla", layout="page_first_direct"),
}


@pytest.mark.parametrize("name", SHAPES)
def test_hicache_loads_what_a_linker_stored(nodes: Any, make_linker: Any, name: str) -> None:
    shape, model = SHAPES[name], f"from linker {name}"
    tokens = pages.tokens(name, 112)
    assert make_linker(0, shape, model=model).prefill(tokens)
    with RadixNode(nodes[1].socket_path, shape, model=model) as hicache:
        assert hicache.fetch(tokens + pages.tokens("more", 40)) == 112
        assert all(map(torch.equal, hicache.load(tokens), hicache.expected(tokens)))


@pytest.mark.parametrize("name", SHAPES)
def test_a_linker_loads_what_hicache_stored(nodes: Any, make_linker: Any, name: str) -> None:
    shape, model = SHAPES[name], f"from hicache {name}"
    tokens = pages.tokens(name, 112)
    with RadixNode(nodes[1].socket_path, shape, model=model) as hicache:
        hicache.prefill(tokens)
    linker = make_linker(0, shape, model=model)
    loading = linker.load(tokens + pages.tokens("more", 40))
    assert loading.tokens == 112
    assert linker.holds(loading, tokens)


def test_a_turn_of_each_continues_the_other_s_prompt(nodes: Any, make_linker: Any) -> None:
    linker = make_linker(0, Shape(tokens=1024), model="turns")
    tokens: list[int] = []
    with RadixNode(nodes[1].socket_path, Shape(tokens=1024), model="turns") as hicache:
        for turn in range(3):
            tokens = tokens + pages.tokens(f"hicache's turn {turn}", 64)
            hicache.prefill(tokens)
            loading = linker.load(tokens)
            assert linker.holds(loading, tokens)
            tokens = tokens + pages.tokens(f"linker's turn {turn}", 64)
            assert linker.prefill(tokens)
            assert hicache.fetch(tokens) == 64
            assert all(map(torch.equal, hicache.load(tokens), hicache.expected(tokens)))


@pytest.mark.parametrize(
    ("layout", "other"),
    [("page_first", "page_first_direct"), ("page_first_direct", "page_first")],
)
def test_the_layout_must_be_that_of_the_other_nodes(
    nodes: Any, make_linker: Any, layout: str, other: str
) -> None:
    model = f"linker {layout}"
    tokens = pages.tokens(model, 64)
    assert make_linker(0, Shape(layout=layout), model=model).prefill(tokens)
    with RadixNode(nodes[1].socket_path, Shape(layout=other), model=model) as hicache:
        assert hicache.fetch(tokens) == 0
