"""Whole engines with two ranks: of TP, or of PP, where each has half of the layers. Each rank is a
process. Their bytes lie side by side in a chunk.

Slow, because each engine has three processes: `make test-vllm-slow`.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from serving.engine import Engine, EngineDied, transfer_config
from serving.prompts import BLOCK_TOKENS, NEW_TOKENS, prompt_of, whole_blocks
from serving.tiny_model import Architecture, write_model

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

ARCHITECTURE = Architecture(layers=4)

TENSOR: Any = {"tensor_parallel_size": 2, "distributed_executor_backend": "mp"}
PIPELINE: Any = {
    "pipeline_parallel_size": 2,
    "distributed_executor_backend": "mp",
    "worker_cls": "serving.pipeline_worker.PipelineWorker",
}


class Engines(NamedTuple):
    kind: str  # of ranks
    plain: Engine  # two ranks, without any connector
    a: Engine  # two ranks
    b: Engine  # two ranks
    one_rank: Engine  # beside the daemon of a


@pytest.fixture(scope="module", params=["tensor", "pipeline"])
def engines(
    tmp_path_factory: pytest.TempPathFactory, nodes: Any, request: pytest.FixtureRequest
) -> Iterator[Engines]:
    model = tmp_path_factory.mktemp("model")
    write_model(model, ARCHITECTURE)
    tiers = [
        transfer_config({"socket_path": str(nodes[place].socket_path)}, 64 << 20)
        for place in (0, 1, 0)
    ]
    two = PIPELINE if request.param == "pipeline" else TENSOR
    with ExitStack() as stack:

        def start(name: str, config: Any, **options: Any) -> Engine:
            # One after the other: their workers are many for the machine.
            engine = stack.enter_context(Engine(name, model, config, max_model_len=1024, **options))
            engine.wait_ready()
            return engine

        yield Engines(
            request.param,
            start("plain", None, **two),
            start("a", tiers[0], **two),
            start("b", tiers[1], **two),
            start("one rank", tiers[2]),
        )


def test_the_second_engine_gets_the_bytes_of_both_ranks(engines: Engines) -> None:
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


def test_an_engine_with_one_rank_takes_none_of_the_pages(engines: Engines) -> None:
    """Its chunks have the same keys and the same number of bytes."""
    prompt = prompt_of(f"{engines.kind}: one rank", 500)
    first = engines.a.answer(prompt, NEW_TOKENS)
    answer = engines.one_rank.answer(prompt, NEW_TOKENS)
    assert answer.cached_tokens == 0
    assert ("load", "ok") not in answer.chunks
    assert answer.same_as(first)
    assert answer.asked == {("store", 0): first.asked["store", 0]}


@pytest.mark.parametrize("rank", [0, 1])
def test_wrong_bytes_of_one_rank_are_another_answer(engines: Engines, rank: int) -> None:
    """So the first test notices wrong bytes of each rank."""
    prompt = prompt_of(f"spoilt {rank}", 700)
    right = engines.a.answer(prompt, NEW_TOKENS)
    engines.b.spoil_loads(part=(rank, 2))
    spoilt = engines.b.answer(prompt, NEW_TOKENS)
    engines.b.spoil_loads(None)
    assert spoilt.cached_tokens == whole_blocks(700)
    assert not spoilt.same_as(right)


def test_ranks_with_different_numbers_of_layers_are_refused(tmp_path: Path, nodes: Any) -> None:
    """vLLM mixes their bytes in its host memory, so the answers would be wrong."""
    write_model(tmp_path, Architecture(layers=3))
    config = transfer_config({"socket_path": str(nodes[0].socket_path)}, 64 << 20)
    with (
        Engine("uneven", tmp_path, config, max_model_len=1024, **PIPELINE) as engine,
        pytest.raises(EngineDied, match=r"first rank has 2 layers .* the model 3 layers"),
    ):
        engine.wait_ready()
