"""Assigns requests to workers, and runs them in a safe order.

Every node has a prefill worker and a decode worker, each a process. A request goes to the prefill
worker of one node, and then to the decode worker of another. So pages set on one node are always
read on another.

Requests overlap, with one exception. If a request shares blocks that an earlier request is the
first to set, it waits for the end of the earlier one. A user's next turn waits for the answer in
the same way. Otherwise the hits would depend on luck, and the best possible rate would mean
nothing.
"""

import asyncio
import json
import math
import random
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from demo.tally import Tally
from demo.worker import Outcome
from demo.workload import Request

# Longest line from a worker. The outcome of a very long chain stays far below it.
_LINE_BYTES_MAX = 16 << 20


class WorkerDied(Exception):
    """A worker process ended, which even the death of a daemon does not excuse."""


@dataclass(frozen=True)
class WorkerOptions:
    page_bytes: int
    batch_pages: int = 128
    timeout_s: float = 2.0
    salt: str = "demo"
    set_all: bool = False


class WorkerProcess:
    """One worker process; it does one job at a time."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self._process = process
        self._turn = asyncio.Lock()

    @staticmethod
    @asynccontextmanager
    async def running(
        name: str, socket_path: Path, options: WorkerOptions
    ) -> AsyncIterator["WorkerProcess"]:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "demo.worker",
            f"--socket={socket_path}",
            f"--name={name}",
            f"--page-bytes={options.page_bytes}",
            f"--batch-pages={options.batch_pages}",
            f"--timeout-s={options.timeout_s}",
            f"--salt={options.salt}",
            *(["--set-all"] if options.set_all else []),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=_LINE_BYTES_MAX,
        )
        worker = WorkerProcess(name, process)
        try:
            await worker._line()
            yield worker
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()

    async def do(self, request: Request) -> Outcome:
        async with self._turn:
            assert self._process.stdin is not None
            job = {"chain": request.chain, "answer": request.answer}
            self._process.stdin.write(json.dumps(job).encode() + b"\n")
            return Outcome(**json.loads(await self._line()))

    async def _line(self) -> bytes:
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line.endswith(b"\n"):
            raise WorkerDied(f"worker {self.name} ended in the middle of the replay")
        return line


@dataclass
class Phase:
    """A part of the replay: before the kill, while a node is dead, or after its return."""

    name: str
    prefill: list[Tally]
    """One per node, as are those of decode."""
    decode: list[Tally]
    seconds: float = 0.0

    @property
    def requests(self) -> int:
        return sum(tally.jobs for tally in self.prefill)


@dataclass
class Progress:
    """The figures shown while the replay runs."""

    requests: int
    hit_rate: float
    got_bytes: int
    set_bytes: int
    wrong_pages: int


class Replay:
    """Sends requests to the workers of all nodes, and sums up their outcomes."""

    def __init__(
        self,
        prefill: list[WorkerProcess],
        decode: list[WorkerProcess],
        *,
        seed: int,
        on_progress: Callable[[Progress], None],
    ) -> None:
        self._prefill = prefill
        self._decode = decode
        self._chance = random.Random(seed)
        self._on_progress = on_progress
        self._phase_began_s = time.monotonic()
        self.phases = [self._new_phase("all")]
        self.taken: list[Request] = []
        """The requests that were replayed, in order."""

    def begin_phase(self, name: str) -> None:
        """Starts a new phase. Later outcomes count for it. If the current one is empty, renames
        it."""
        now = time.monotonic()
        if self.phases[-1].requests:
            self.phases[-1].seconds = now - self._phase_began_s
            self.phases.append(self._new_phase(name))
        else:
            self.phases[-1].name = name
        self._phase_began_s = now

    def _new_phase(self, name: str) -> Phase:
        return Phase(name, [Tally() for _ in self._prefill], [Tally() for _ in self._decode])

    async def run(
        self,
        requests: Iterable[Request],
        *,
        seconds_max: float | None = None,
        per_s: float = math.inf,
        before: Callable[[int], Awaitable[None]] | None = None,
    ) -> None:
        """Runs until the requests or the seconds end, at most `per_s` requests a second.
        `before(n)` is awaited ahead of request n."""
        began_s = time.monotonic()
        until_s = None if seconds_max is None else began_s + seconds_max
        overlap = asyncio.Semaphore(len(self._prefill) + len(self._decode))
        first_in: dict[int, asyncio.Task[None]] = {}  # block -> the request that first brings it
        seen: set[int] = set()
        running: set[asyncio.Task[None]] = set()
        try:
            for number, request in enumerate(requests):
                if until_s is not None and time.monotonic() > until_s:
                    break
                await asyncio.sleep(began_s + number / per_s - time.monotonic())
                if before is not None:
                    await before(number)
                await overlap.acquire()
                for block in request.chain:
                    if block in first_in:
                        await first_in[block]
                _raise_first_failure(running)
                node = self._chance.randrange(len(self._prefill))
                task = asyncio.create_task(self._one(request, node, overlap))
                running.add(task)
                new_blocks = {*request.chain, *request.answer} - seen
                seen |= new_blocks
                first_in.update(dict.fromkeys(new_blocks, task))

                def finished(
                    done: asyncio.Task[None], brought: frozenset[int] = frozenset(new_blocks)
                ) -> None:
                    for block in brought:
                        del first_in[block]

                task.add_done_callback(finished)
                self.taken.append(request)
            await asyncio.gather(*running)
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            self.phases[-1].seconds = time.monotonic() - self._phase_began_s

    async def _one(self, request: Request, node: int, overlap: asyncio.Semaphore) -> None:
        try:
            outcome = await self._prefill[node].do(Request(request.chain))
            self.phases[-1].prefill[node].add(outcome)
            self._show()
            others = [place for place in range(len(self._decode)) if place != node]
            node = self._chance.choice(others or [node])
            outcome = await self._decode[node].do(request)
            self.phases[-1].decode[node].add(outcome)
            self._show()
        finally:
            overlap.release()

    def _show(self) -> None:
        prefill = [tally for phase in self.phases for tally in phase.prefill]
        decode = [tally for phase in self.phases for tally in phase.decode]
        both = prefill + decode
        asked = sum(tally.asked_pages for tally in prefill)
        self._on_progress(
            Progress(
                requests=sum(tally.jobs for tally in decode),
                hit_rate=sum(tally.hit_pages for tally in prefill) / max(1, asked),
                got_bytes=sum(tally.got_bytes for tally in both),
                set_bytes=sum(tally.set_bytes for tally in both),
                wrong_pages=sum(tally.wrong_pages for tally in both),
            )
        )


def _raise_first_failure(running: set[asyncio.Task[None]]) -> None:
    """Removes the finished requests. If one failed, raises its error, which ends the replay."""
    for task in [task for task in running if task.done()]:
        running.discard(task)
        task.result()
