"""Whole engines with a hybrid model: some layers have a sliding window, others see everything. vLLM
has several KV cache groups for it, and each chunk of a prompt has a page for each group."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest
from serving.engine import Answer, Engine, transfer_config
from serving.prompts import BLOCK_TOKENS, NEW_TOKENS, prompt_of, whole_blocks
from serving.tiny_gemma import Hybrid, layer_types, write_hybrid

HYBRID = Hybrid()
# vLLM puts two layers into each group: four layers have a window, two have full attention.
WINDOWS, FULL = (0, 1), 2
# vLLM keeps as much of a window as the next token needs.
WINDOW_CHUNKS = -(-(HYBRID.window_tokens - 1) // BLOCK_TOKENS)


class Engines(NamedTuple):
    plain: Engine  # without any connector
    a: Engine
    b: Engine
    others: Engine  # beside the daemon of a, with other layers in its groups


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory, nodes: Any) -> Iterator[Engines]:
    model = tmp_path_factory.mktemp("hybrid")
    write_hybrid(model, HYBRID)
    tiers = [
        transfer_config({"socket_path": str(nodes[place].socket_path)}, 64 << 20)
        for place in (0, 1, 0)
    ]
    # The same name, weights and number of groups.
    other_layers = {"layer_types": layer_types("sssfsf")}
    with ExitStack() as stack:

        def start(name: str, config: Any, **options: Any) -> Engine:
            return stack.enter_context(Engine(name, model, config, max_model_len=2048, **options))

        engines = Engines(
            start("plain", None),
            start("a", tiers[0]),
            start("b", tiers[1]),
            start("others", tiers[2], hf_overrides=other_layers),
        )
        for engine in engines:
            engine.wait_ready()
        yield engines


def pages(answer: Answer, operation: str) -> list[int]:
    """The number of pages of each group."""
    return [len(answer.asked.get((operation, group), ())) for group in (*WINDOWS, FULL)]


def test_the_second_engine_gets_the_pages_of_each_group(engines: Engines) -> None:
    prompt = prompt_of("shared", 700)
    right = engines.plain.answer(prompt, NEW_TOKENS)
    first = engines.a.answer(prompt, NEW_TOKENS)
    assert first.same_as(right)
    assert first.cached_tokens == 0
    expected = [WINDOW_CHUNKS, WINDOW_CHUNKS, 700 // BLOCK_TOKENS]
    assert pages(first, "store") == expected
    assert first.chunks == {("store", "ok"): sum(expected)}
    # The groups have the same hashes: only the number of the group tells their pages apart.
    for window in WINDOWS:
        assert set(first.asked["store", window]) < set(first.asked["store", FULL])

    second = engines.b.answer(prompt, NEW_TOKENS)
    assert second.same_as(right)
    assert second.cached_tokens == whole_blocks(700)
    assert pages(second, "load") == expected
    assert second.chunks == {("load", "ok"): sum(expected)}


def test_a_longer_prompt_computes_only_what_is_new(engines: Engines) -> None:
    head, tail = prompt_of("head", 330), prompt_of("tail", 333)
    engines.a.answer(head, 1)
    second = engines.b.answer(head + tail, NEW_TOKENS)
    assert second.cached_tokens == 320
    assert second.same_as(engines.plain.answer(head + tail, NEW_TOKENS))
    again = engines.a.answer(head + tail, NEW_TOKENS)
    assert again.same_as(second)
    assert again.cached_tokens == whole_blocks(663)


def test_a_prompt_that_branches_off_where_no_window_was_kept_is_computed(
    engines: Engines,
) -> None:
    """vLLM keeps the windows of a prompt's end alone."""
    prompt = prompt_of("trunk", 700)
    engines.a.answer(prompt, 1)
    branch = prompt[:400] + prompt_of("branch", 100)
    answer = engines.b.answer(branch, NEW_TOKENS)
    assert answer.cached_tokens == 0
    assert answer.same_as(engines.plain.answer(branch, NEW_TOKENS))


def test_pages_that_an_engine_forgot_come_back_from_its_daemon(engines: Engines) -> None:
    prompt = prompt_of("forgotten", 500)
    first = engines.a.answer(prompt, NEW_TOKENS)
    engines.a.forget()
    again = engines.a.answer(prompt, NEW_TOKENS)
    assert again.same_as(first)
    assert again.cached_tokens == whole_blocks(500)


def test_an_engine_with_other_groups_takes_none_of_the_pages(engines: Engines) -> None:
    """Same model name, same number and sizes of groups, same keys, and the same daemon."""
    prompt = prompt_of("others", 500)
    first = engines.a.answer(prompt, NEW_TOKENS)
    answer = engines.others.answer(prompt, NEW_TOKENS)
    assert answer.cached_tokens == 0
    assert ("load", "ok") not in answer.chunks
    assert answer.asked["store", FULL] == first.asked["store", FULL]
    assert not answer.same_as(first), "its pages have other bytes"
    engines.others.forget()
    again = engines.others.answer(prompt, NEW_TOKENS)
    assert again.cached_tokens == whole_blocks(500)
    assert again.same_as(answer)


@pytest.mark.parametrize("group", [*WINDOWS, FULL])
def test_a_single_wrong_page_of_a_group_is_another_answer(engines: Engines, group: int) -> None:
    """So the other tests notice wrong bytes in each group."""
    prompt = prompt_of(f"spoilt {group}", 700)
    right = engines.a.answer(prompt, NEW_TOKENS)
    engines.b.spoil_loads(group)
    spoilt = engines.b.answer(prompt, NEW_TOKENS)
    engines.b.spoil_loads(None)
    assert spoilt.cached_tokens == whole_blocks(700)
    assert not spoilt.same_as(right)
