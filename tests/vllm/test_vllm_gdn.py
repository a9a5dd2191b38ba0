"""Whole engines with a hybrid model: its linear layers (Gated DeltaNet) keep a state, not KV. A
prompt has one page for the state at its end, and a page for each block of its other layers."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from serving.engine import Engine, transfer_config
from serving.killed_load import Engines, check_that_a_killed_load_is_computed
from serving.prompts import NEW_TOKENS, prompt_of

# Groups of the KV cache.
STATE, FULL = 0, 1
# vLLM makes a block of attention as large as the state.
BLOCK_TOKENS = 160


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory, nodes: Any) -> Iterator[Engines]:
    from serving.tiny_gdn import write_gdn

    model = tmp_path_factory.mktemp("gdn")
    write_gdn(model)
    configs = [
        None,
        *(transfer_config({"socket_path": str(nodes[i].socket_path)}, 64 << 20) for i in (0, 1)),
    ]
    with ExitStack() as stack:
        started = [
            stack.enter_context(
                Engine(
                    name,
                    model,
                    config,
                    max_model_len=2048,
                    dtype="bfloat16",
                    enable_prefix_caching=True,
                )
            )
            for name, config in zip(("plain", "a", "b"), configs, strict=True)
        ]
        for engine in started:
            engine.wait_ready()
        plain, a, b = started
        yield Engines(plain, a, b, nodes)


def test_the_second_engine_gets_the_state_and_the_pages(engines: Engines) -> None:
    prompt = prompt_of("shared", 700)
    right = engines.plain.answer(prompt, NEW_TOKENS)
    first = engines.a.answer(prompt, NEW_TOKENS)
    assert first.same_as(right)
    blocks = 700 // BLOCK_TOKENS
    assert [len(first.asked["store", group]) for group in (STATE, FULL)] == [1, blocks]
    second = engines.b.answer(prompt, NEW_TOKENS)
    assert second.same_as(right)
    assert second.cached_tokens == blocks * BLOCK_TOKENS
    assert second.chunks == {("load", "ok"): 1 + blocks}

    longer = prompt + prompt_of("tail", 333)
    again = engines.a.answer(longer, NEW_TOKENS)
    assert again.cached_tokens == blocks * BLOCK_TOKENS
    assert again.same_as(engines.plain.answer(longer, NEW_TOKENS))


def test_a_daemon_killed_in_the_middle_of_a_load_ends_in_a_recompute(engines: Engines) -> None:
    check_that_a_killed_load_is_computed(engines)


def test_a_single_wrong_page_is_another_answer(engines: Engines) -> None:
    """So the other tests notice wrong bytes. It is the last one, because b stays spoilt."""
    prompt = prompt_of("spoilt", 700)
    right = engines.a.answer(prompt, NEW_TOKENS)
    engines.b.spoil_loads(FULL)
    spoilt = engines.b.answer(prompt, NEW_TOKENS)
    assert spoilt.cached_tokens == 700 // BLOCK_TOKENS * BLOCK_TOKENS
    assert not spoilt.same_as(right)
