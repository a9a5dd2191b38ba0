"""Two whole vLLM engines with a daemon each answer as an engine without the tier: with the same
tokens and logprobs."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from serving.engine import Engine, transfer_config
from serving.killed_load import Engines, check_that_a_killed_load_is_computed
from serving.prompts import BLOCK_TOKENS, NEW_TOKENS, prompt_of, whole_blocks
from serving.tiny_model import Architecture, write_model

ARCHITECTURE = Architecture()


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory, nodes: Any) -> Iterator[Engines]:
    model = tmp_path_factory.mktemp("model")
    write_model(model, ARCHITECTURE)
    with ExitStack() as stack:
        configs = [
            None,
            *(
                transfer_config({"socket_path": str(nodes[i].socket_path)}, 64 << 20)
                for i in (0, 1)
            ),
        ]
        plain, a, b = (
            stack.enter_context(Engine(name, model, config, max_model_len=2048))
            for name, config in zip(("plain", "a", "b"), configs, strict=True)
        )
        for engine in (plain, a, b):
            engine.wait_ready()
        yield Engines(plain, a, b, nodes)


def test_the_second_engine_gets_what_the_first_computed(engines: Engines) -> None:
    prompt = prompt_of("shared", 700)
    right = engines.plain.answer(prompt, NEW_TOKENS)
    first = engines.a.answer(prompt, NEW_TOKENS)
    assert first.same_as(right)
    assert first.cached_tokens == 0
    assert first.chunks == {("store", "ok"): 700 // BLOCK_TOKENS}
    second = engines.b.answer(prompt, NEW_TOKENS)
    assert second.same_as(right)
    assert second.cached_tokens == whole_blocks(700)
    assert second.chunks == {("load", "ok"): 700 // BLOCK_TOKENS}


def test_a_longer_prompt_computes_only_what_is_new(engines: Engines) -> None:
    head, tail = prompt_of("head", 320), prompt_of("tail", 333)
    engines.a.answer(head, 1)
    second = engines.b.answer(head + tail, NEW_TOKENS)
    assert second.cached_tokens == 320
    assert second.same_as(engines.plain.answer(head + tail, NEW_TOKENS))
    again = engines.a.answer(head + tail, NEW_TOKENS)
    assert again.cached_tokens == whole_blocks(653)
    assert again.same_as(second)


def test_pages_that_an_engine_forgot_come_back_from_its_daemon(engines: Engines) -> None:
    prompt = prompt_of("forgotten", 500)
    first = engines.a.answer(prompt, NEW_TOKENS)
    engines.a.forget()
    again = engines.a.answer(prompt, NEW_TOKENS)
    assert again.same_as(first)
    assert again.cached_tokens == whole_blocks(500)
    assert again.chunks == {("load", "ok"): 500 // BLOCK_TOKENS}


def test_a_daemon_killed_in_the_middle_of_a_load_ends_in_a_recompute(engines: Engines) -> None:
    check_that_a_killed_load_is_computed(engines)


def test_a_single_wrong_page_is_another_answer(engines: Engines) -> None:
    """So the other tests notice wrong bytes. It is the last one, because b stays spoilt."""
    prompt = prompt_of("spoilt", 700)
    right = engines.a.answer(prompt, NEW_TOKENS)
    engines.b.spoil_loads()
    spoilt = engines.b.answer(prompt, NEW_TOKENS)
    assert spoilt.cached_tokens == whole_blocks(700)
    assert not spoilt.same_as(right)
