"""An engine in a process of its own: prompts in, answers out. It can be killed at any time."""

import multiprocessing
import traceback
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from llm.engine import Answer, Engine
from llm.host_memory import kv_bytes
from llm.model import Architecture

_ANSWER_S_MAX = 300.0


class WorkerDied(Exception):
    """The process ended, or did not answer in time."""


@dataclass(frozen=True)
class Failure:
    """Sent instead of an answer, before the process ends."""

    text: str


class Worker:
    """One SGLang process beside one daemon. Not thread safe. A context manager that kills it."""

    def __init__(
        self, name: str, socket_path: Path, architecture: Architecture, **options: Any
    ) -> None:
        """`options`: those of Engine."""
        self.name = name
        context = multiprocessing.get_context("spawn")
        self._line, theirs = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(theirs, socket_path, architecture, options), daemon=True
        )
        self._process.start()
        theirs.close()

    def wait_ready(self) -> None:
        self._receive()

    def answer(self, prompt: Sequence[int], new_tokens: int, **options: bool) -> Answer:
        """`options`: those of Engine.answer."""
        self._line.send((list(prompt), new_tokens, options))
        answer: Answer = self._receive()
        return answer

    def host_kv_bytes(self) -> int:
        """Measured now, without the memory that plays a GPU."""
        assert self._process.pid is not None
        return kv_bytes(self._process.pid)

    def kill(self) -> None:
        """Sends SIGKILL and waits for the end of the process."""
        self._process.kill()
        self._process.join()

    def _receive(self) -> Any:
        try:
            if self._line.poll(_ANSWER_S_MAX):
                answer = self._line.recv()
                if isinstance(answer, Failure):
                    raise WorkerDied(f"{self.name} failed:\n{answer.text}")
                return answer
        except EOFError:
            self._process.join(10)
            raise WorkerDied(f"{self.name} ended ({self._process.exitcode})") from None
        raise WorkerDied(f"{self.name} has not answered for {_ANSWER_S_MAX:g} s")

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._line.close()


def _serve(
    line: Connection, socket_path: Path, architecture: Architecture, options: dict[str, Any]
) -> None:
    from peercache_bench.process import die_with_parent

    die_with_parent()
    warnings.simplefilter("ignore")  # SGLang warns often about the missing GPU
    import on_cpu

    on_cpu.install()
    import torch

    torch.set_num_threads(1)  # several workers and daemons share the machine
    try:
        with Engine(socket_path, architecture, **options) as engine:
            # Makes SGLang compile its page hash now. These tokens are in no prompt.
            engine.answer([architecture.vocabulary - 1] * (2 * architecture.page_tokens + 1), 1)
            line.send("ready")
            while True:
                prompt, new_tokens, how = line.recv()
                line.send(engine.answer(prompt, new_tokens, **how))
    except (EOFError, BrokenPipeError):
        return  # the parent has gone
    except Exception:
        line.send(Failure(traceback.format_exc()))
