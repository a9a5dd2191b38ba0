"""A vLLM engine in a process of its own: token ids in, token ids out. It can be killed."""

from __future__ import annotations

import multiprocessing
import os
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

_ANSWER_S_MAX = 900.0


@dataclass(frozen=True)
class Answer:
    tokens: list[int]
    logprobs: list[float]
    """Of these tokens. They change with any of the KV that was used, where tokens may not."""
    cached_tokens: int
    """Of the prompt, the tokens that were not computed."""
    first_token_s: float
    chunks: dict[tuple[str, str], float]
    """The chunks that the tier moved since the last answer, by operation and status."""
    asked: dict[tuple[str, int], list[bytes]]
    """The same by operation and KV cache group: the hashes of the chunks, whatever their status."""

    def same_as(self, other: Answer) -> bool:
        """Sums in another order change logprobs by less than 1e-4."""
        pairs = zip(self.logprobs, other.logprobs, strict=True)
        return self.tokens == other.tokens and all(abs(x - y) < 1e-3 for x, y in pairs)


@dataclass(frozen=True)
class Failure:
    """Sent instead of an answer, before the process ends."""

    text: str


@dataclass(frozen=True)
class Spoil:
    """A request to the process: see `Engine.spoil_loads`."""

    group: int | None = None
    part: tuple[int, int] = (0, 1)


class EngineDied(Exception):
    """The process ended, or did not answer in time."""


def transfer_config(tier: dict[str, Any], host_bytes: int, **more: Any) -> dict[str, Any]:
    return {
        "kv_connector": "OffloadingConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {
            "spec_name": "CpuTieringSpec",
            "spec_module_path": "serving.cpu_spec",
            "cpu_bytes_to_use": host_bytes,
            "secondary_tiers": [
                {"type": "PeerCacheTier", "module_path": "peercache_client.vllm", **tier}
            ],
            **more,
        },
    }


class Engine:
    """Not thread safe. A context manager that kills the process."""

    def __init__(
        self,
        name: str,
        model: Path,
        kv_transfer_config: dict[str, Any] | None,
        *,
        prepare: Callable[[], None] | None = None,
        **options: Any,
    ) -> None:
        """`prepare` runs in the process before vLLM starts. `options`: of vLLM's LLM."""
        self.name = name
        context = multiprocessing.get_context("spawn")
        self._line, theirs = context.Pipe()
        self.load_begun = context.Event()
        """Set when the tier begins to load chunks."""
        self._process = context.Process(
            target=_serve,
            args=(theirs, self.load_begun, str(model), kv_transfer_config, prepare, options),
            # It has workers as children if there are several ranks. It dies with its parent.
            daemon=False,
        )
        self._process.start()
        theirs.close()

    def wait_ready(self) -> None:
        self._receive()

    def ask(self, prompt: Sequence[int], new_tokens: int, *, reuse: bool = True) -> None:
        """Without `reuse`, vLLM computes everything again. `receive` has the answer."""
        self._line.send((list(prompt), new_tokens, reuse))

    def receive(self) -> Answer:
        answer: Answer = self._receive()
        return answer

    def answer(self, prompt: Sequence[int], new_tokens: int, *, reuse: bool = True) -> Answer:
        self.ask(prompt, new_tokens, reuse=reuse)
        return self.receive()

    def forget(self) -> None:
        """Empties vLLM's own caches, on its device and in its host memory."""
        self._line.send("forget")
        self._receive()

    def spoil_loads(self, group: int | None = 0, part: tuple[int, int] = (0, 1)) -> None:
        """From now on, the last chunk of this KV cache group in each load has the bytes of the one
        before it. None: no more. `part` (1, 2): only in the second half of the chunk."""
        self._line.send(Spoil(group, part))
        self._receive()

    def kill(self) -> None:
        self._process.kill()
        self._process.join()

    def _receive(self) -> Any:
        try:
            if self._line.poll(_ANSWER_S_MAX):
                answer = self._line.recv()
                if isinstance(answer, Failure):
                    raise EngineDied(f"{self.name} failed:\n{answer.text}")
                return answer
        except EOFError:
            self._process.join(10)
            raise EngineDied(f"{self.name} ended ({self._process.exitcode})") from None
        raise EngineDied(f"{self.name} has not answered for {_ANSWER_S_MAX:g} s")

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._line.close()


# --- the engine's side ------------------------------------------------------------------------


def _serve(
    line: Connection,
    load_begun: Event,
    model: str,
    kv_transfer_config: dict[str, Any] | None,
    prepare: Callable[[], None] | None,
    options: dict[str, Any],
) -> None:
    from peercache_bench.process import die_with_parent

    die_with_parent()
    os.environ |= {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # scheduler and worker in this process
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # several engines share the machine
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
    }
    try:
        if prepare is not None:
            prepare()
        line.send(_Served(load_begun, model, kv_transfer_config, options).run(line))
    except (EOFError, BrokenPipeError):
        return  # the parent has gone
    except Exception:
        line.send(Failure(traceback.format_exc()))


class _Served:
    def __init__(
        self,
        load_begun: Event,
        model: str,
        kv_transfer_config: dict[str, Any] | None,
        options: dict[str, Any],
    ) -> None:
        from vllm.entrypoints.llm import LLM

        self._llm = LLM(
            model,
            skip_tokenizer_init=True,
            enforce_eager=True,
            use_tqdm_on_load=False,
            kv_cache_memory_bytes=256 << 20,
            block_size=32,
            max_num_batched_tokens=512,
            disable_log_stats=False,
            kv_transfer_config=kv_transfer_config,
            **{"dtype": "float32", **options},
        )
        self._scheduler = self._llm.llm_engine.engine_core.engine_core.scheduler
        self._counted: Counter[tuple[str, str]] = Counter()
        self._asked: dict[tuple[str, int], list[bytes]] = {}
        self._manager: Any = None
        self._spoilt = Spoil()
        if (kv_transfer_config or {}).get("kv_connector") == "OffloadingConnector":
            self._manager = self._scheduler.connector.connector_scheduler.manager
            tier = self._manager.secondary_tiers[0]
            self._watch("load", tier._loads, load_begun)
            self._watch("store", tier._stores, None)
            self._count_chunks()

    def _watch(self, operation: str, mover: Any, begun: Event | None) -> None:
        from vllm.v1.kv_offload.base import get_offload_block_hash, get_offload_group_idx

        run = mover._run_task

        def watched(transfer: Any) -> Any:
            if begun is not None:
                begun.set()
            outcome = run(transfer)
            slots_of: dict[int, list[int]] = {}
            for key, slot in zip(transfer.keys, transfer.slots, strict=True):
                group = get_offload_group_idx(key)
                slots_of.setdefault(group, []).append(slot)
                self._asked.setdefault((operation, group), []).append(get_offload_block_hash(key))
            if operation == "load" and self._spoilt.group in slots_of:
                self._spoil(slots_of[self._spoilt.group])
            return outcome

        mover._run_task = watched

    def _spoil(self, slots: Sequence[int]) -> None:
        view = self._manager.primary_tier.get_kv_memoryview()
        flat, size = view.cast("B"), view.strides[0]
        number, parts = self._spoilt.part
        begin, length = number * size // parts, size // parts
        right, wrong = (
            slice(slot * size + begin, slot * size + begin + length) for slot in slots[-2:]
        )
        # Not swapped: attention does not depend on the order of keys and values.
        flat[wrong] = bytes(flat[right])

    def _count_chunks(self) -> None:
        """vLLM takes the tier's figures in each step."""
        tier = self._manager.secondary_tiers[0]
        take = tier.get_stats

        def counting() -> Any:
            stats = take()
            if stats is not None:
                self._counted.update(stats.data["data"]["vllm:kv_offload_peercache_chunks"])
            return stats

        tier.get_stats = counting

    def run(self, line: Connection) -> Any:
        line.send("ready")
        while True:
            asked = line.recv()
            if asked == "forget":
                assert self._llm.reset_prefix_cache(reset_connector=True)
                line.send("forgotten")
            elif isinstance(asked, Spoil):
                self._spoilt = asked
                line.send("spoilt")
            else:
                line.send(self._answer(*asked))

    def _answer(self, prompt: list[int], new_tokens: int, reuse: bool) -> Answer:
        from vllm.sampling_params import SamplingParams

        params = SamplingParams(
            temperature=0.0,
            max_tokens=new_tokens,
            ignore_eos=True,
            detokenize=False,
            logprobs=0,
            skip_reading_prefix_cache=not reuse,
        )
        began_s = time.monotonic()
        [output] = self._llm.generate([{"prompt_token_ids": prompt}], params, use_tqdm=False)
        took_s = time.monotonic() - began_s
        metrics = output.metrics
        first_s = metrics.first_token_latency if metrics is not None else took_s
        self._settle()
        tokens = list(output.outputs[0].token_ids)
        return Answer(
            tokens,
            [
                step[token].logprob
                for step, token in zip(output.outputs[0].logprobs, tokens, strict=True)
            ],
            output.num_cached_tokens or 0,
            first_s,
            self._chunks(),
            self._take_asked(),
        )

    def _settle(self) -> None:
        """Steps until the stores have ended, as a server does between requests."""
        engine = self._llm.llm_engine.engine_core.engine_core
        while self._scheduler.has_requests():
            engine.step()

    def _take_asked(self) -> dict[tuple[str, int], list[bytes]]:
        asked, self._asked = self._asked, {}
        return asked

    def _chunks(self) -> dict[tuple[str, str], float]:
        counted, self._counted = self._counted, Counter()
        return dict(counted)
