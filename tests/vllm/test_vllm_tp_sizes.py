"""Engines with one TP rank and with two share pages that vLLM has certified as canonical: those of
the whole model. Their answers have the same tokens and logprobs as without the tier.

Slow, because an engine with two ranks has three processes: `make test-vllm-slow`. Other pages are
kept apart: test_vllm_ranks.py, test_vllm_namespace.py.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest
from serving.engine import Engine, transfer_config
from serving.prompts import NEW_TOKENS, prompt_of, whole_blocks
from serving.tiny_gemma import Hybrid, write_hybrid
from serving.tiny_model import Architecture, write_model

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

TP_2: Any = {"tensor_parallel_size": 2, "distributed_executor_backend": "mp"}


class Engines(NamedTuple):
    plain: Engine  # one rank, without any connector
    one: Engine
    two: Engine  # two ranks


@pytest.fixture(scope="module", params=["full attention", "sliding windows"])
def engines(
    tmp_path_factory: pytest.TempPathFactory, nodes: Any, request: pytest.FixtureRequest
) -> Iterator[Engines]:
    model = tmp_path_factory.mktemp("model")
    if request.param == "full attention":
        write_model(model, Architecture())
    else:
        write_hybrid(model, Hybrid())
    with ExitStack() as stack:

        def start(name: str, config: Any, **options: Any) -> Engine:
            # One after the other: their workers are many for the machine.
            engine = stack.enter_context(Engine(name, model, config, max_model_len=1024, **options))
            engine.wait_ready()
            return engine

        one, two = (
            transfer_config({"socket_path": str(node.socket_path)}, 64 << 20, canonical_layout=True)
            for node in nodes.daemons
        )
        yield Engines(start("plain", None), start("one", one), start("two", two, **TP_2))


@pytest.mark.parametrize("order", ["one first", "two first"])
def test_engines_with_another_tp_size_load_certified_pages(engines: Engines, order: str) -> None:
    prompt = prompt_of(order, 700)
    right = engines.plain.answer(prompt, NEW_TOKENS)
    first, second = engines.one, engines.two
    if order == "two first":
        first, second = second, first
    stored = first.answer(prompt, NEW_TOKENS)
    assert stored.cached_tokens == 0
    assert stored.same_as(right)
    loaded = second.answer(prompt, NEW_TOKENS)
    assert loaded.cached_tokens == whole_blocks(700)
    assert loaded.chunks == {("load", "ok"): stored.chunks["store", "ok"]}
    assert loaded.same_as(right)


def test_a_single_wrong_page_is_another_answer(engines: Engines) -> None:
    """So the test above notices wrong bytes. It is the last one, because `two` stays spoilt."""
    prompt = prompt_of("spoilt", 700)
    right = engines.one.answer(prompt, NEW_TOKENS)
    engines.two.spoil_loads()
    spoilt = engines.two.answer(prompt, NEW_TOKENS)
    assert spoilt.cached_tokens == whole_blocks(700)
    assert not spoilt.same_as(right)
