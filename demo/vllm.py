"""Two vLLM engines with a daemon each, and the gain from a shared KV cache: `make demo-vllm`."""

# /// script
# [tool.peercached]
# engine = "vllm"
# ///

import argparse
import random
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from harness.cluster import Cluster
from rich.table import Table
from serving.engine import Answer, Engine, transfer_config
from serving.tiny_model import Architecture, write_model

from peercache_bench.report import report_console

_NEW_TOKENS = 16
_PROMPTS = 3


def main() -> int:
    parser = argparse.ArgumentParser(prog="make demo-vllm", description=__doc__)
    parser.add_argument("--layers", type=int, default=8, help="of the model (default: 8)")
    parser.add_argument("--prompt", type=int, default=2048, help="tokens (default: 2048)")
    given = parser.parse_args()
    architecture = Architecture(
        layers=given.layers, hidden=512, query_heads=8, kv_heads=2, head_dim=64, inner=1536,
        vocabulary=4096, context_tokens=2 * given.prompt,
    )  # fmt: skip
    console = report_console(stderr=False)
    console.print(
        f"a Llama of {architecture.layers} layers with random weights, float32 on one core: "
        f"{architecture.kv_bytes_per_token >> 10} KiB of KV per token; prompts of {given.prompt} "
        "tokens"
    )
    table = Table(title="first token on the second host", title_justify="left")
    for column in (
        "prompt",
        "got from the first host",
        "first token",
        "without",
        "times",
        "tokens",
    ):
        table.add_column(column, justify="right")
    wrong = 0
    with (
        console.status("starting two daemons and two vLLM engines"),
        _engines(architecture, given.prompt) as (first, second),
    ):
        for number in range(_PROMPTS):
            chosen = random.Random(number)
            prompt = [chosen.randrange(2, architecture.vocabulary) for _ in range(given.prompt)]
            right = first.answer(prompt, _NEW_TOKENS)
            reused = second.answer(prompt, _NEW_TOKENS)
            computed = second.answer(prompt, _NEW_TOKENS, reuse=False)
            same = reused.same_as(computed) and reused.same_as(right)
            wrong += not same
            table.add_row(*_row(number, reused, computed), "the same" if same else "WRONG")
    console.print(table)
    return 1 if wrong else 0


def _row(number: int, reused: Answer, computed: Answer) -> list[str]:
    return [
        str(number + 1),
        f"{reused.cached_tokens:,} tokens",
        f"{reused.first_token_s:.2f} s",
        f"{computed.first_token_s:.2f} s",
        f"{computed.first_token_s / reused.first_token_s:.1f}",
    ]


@contextmanager
def _engines(architecture: Architecture, prompt_tokens: int) -> Iterator[tuple[Engine, Engine]]:
    kv_bytes = 2 * _PROMPTS * prompt_tokens * architecture.kv_bytes_per_token
    with ExitStack() as stack:
        model = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="demo-vllm-")))
        write_model(model, architecture)
        cluster = stack.enter_context(Cluster(2, options={"pool-size": max(kv_bytes, 64 << 20)}))
        cluster.start()
        first, second = (
            stack.enter_context(
                Engine(
                    daemon.node_id,
                    model,
                    transfer_config({"socket_path": str(daemon.socket_path)}, kv_bytes),
                    max_model_len=prompt_tokens + _NEW_TOKENS,
                )
            )
            for daemon in cluster.daemons
        )
        for engine in (first, second):
            engine.wait_ready()
            # Compiles and loads what the first prompt needs. These tokens are in no prompt.
            engine.answer([0] * 64, 1)
        yield first, second


if __name__ == "__main__":
    sys.exit(main())
