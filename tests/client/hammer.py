"""Uses the client in every way that engines do: threads, children made in three ways, signal
handlers that raise, a busy collector, cancelled asyncio calls. Needs only peercache_client.

    python tests/client/hammer.py SOCKET SECONDS SEED

A page's bytes follow from its key. Prints counts of its calls. Exits with 1 and a message if a hit
had other bytes, or if memory changed after the call that could write there had ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import hashlib
import logging
import multiprocessing
import os
import random
import signal
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable

from peercache_client import AsyncClient, Client, Region, Status

logging.getLogger("peercache_client").addHandler(logging.NullHandler())
logging.getLogger("asyncio").setLevel(logging.ERROR)  # a fork makes every thread wait

SIZES = (64, 4096, 300_000)
TIMEOUT_S = 1.0
CHILD_S = 1.0
THREADS = 4


class Hit(BaseException):
    """Raised by the signal handler."""


class Handler:
    """Raises Hit once each time that `raises` is set."""

    raises = False

    @classmethod
    def handle(cls, *_: object) -> None:
        if cls.raises:
            cls.raises = False
            raise Hit


class Wrong(Exception):
    pass


def page_of(key: str, size: int) -> bytes:
    block = hashlib.sha256(key.encode()).digest()
    return (block * (size // len(block) + 1))[:size]


class Worker:
    """The work of one thread. No other worker uses its keys, and it sets each key once."""

    def __init__(self, client: Client, name: str, seed: int) -> None:
        self.client, self.name = client, name
        self.dice = random.Random(f"{seed} {name}")
        self.done: Counter[str] = Counter()
        self.stored: list[tuple[str, int]] = []
        self.region: Region | None = None
        self.number = 0

    def step(self) -> None:
        if self.region is None or self.region.closed or self.dice.random() < 0.02:
            if self.region is not None:
                self.region.close()
            self.region = self.client.alloc(2 * max(SIZES))
        chance = self.dice.random()
        if chance < 0.3 or not self.stored:
            self.set(self.dice.random() < 0.5)
        elif chance < 0.9:
            self.get(self.dice.random() < 0.5)
        else:
            self.client.contains([key for key, _ in self.stored[-20:]], timeout_s=TIMEOUT_S)
            self.done["exists"] += 1

    def set(self, in_region: bool) -> None:
        self.number += 1
        key, size = f"{self.name} {self.number}", self.dice.choice(SIZES)
        page = page_of(key, size)
        if in_region and self.region is not None:
            self.region.view[:size] = page
            status = self.client.batch_set([key], self.region, [0], size, timeout_s=TIMEOUT_S)[0]
        else:
            status = self.client.set(key, page, timeout_s=TIMEOUT_S)
        self.done[f"set {status.name}"] += 1
        if status is Status.no_daemon:
            time.sleep(0.005)
        if status is Status.ok:
            self.stored.append((key, size))

    def get(self, in_region: bool) -> None:
        key, size = self.dice.choice(self.stored)
        if in_region and self.region is not None:
            offset = max(SIZES)
            try:
                status = self.client.batch_get(
                    [key], self.region, [offset], size, timeout_s=TIMEOUT_S
                )[0]
            finally:
                self.check_silence(self.region, offset, size)
            if status is Status.ok:
                self.check(key, bytes(self.region.view[offset : offset + size]))
            self.done[f"get {status.name}"] += 1
        else:
            page = self.client.get(key, size, timeout_s=TIMEOUT_S)
            if page is not None:
                self.check(key, page)
            self.done["get ok" if page is not None else "get nothing"] += 1

    def check(self, key: str, page: bytes) -> None:
        if page != page_of(key, len(page)):
            raise Wrong(f"{key} has other bytes: {page[:32]!r}")

    def check_silence(self, region: Region, offset: int, size: int) -> None:
        """Fails if memory changes after the call has ended, even by an exception."""
        if self.dice.random() < 0.05 and not region.segment.quarantined:
            before = bytes(region.view[offset : offset + size])
            time.sleep(0.002)
            if bytes(region.view[offset : offset + size]) != before:
                raise Wrong("memory was written after the call had ended")


def run(worker: Worker, until: float, problems: list[str]) -> None:
    while time.monotonic() < until and not problems:
        try:
            while time.monotonic() < until:
                worker.step()
        except Hit:
            worker.done["hit"] += 1
            Handler.raises = True
        except Exception as error:
            problems.append(f"{worker.name}: {type(error).__name__}: {error}")


async def cancelled(client: AsyncClient, dice: random.Random, done: Counter[str]) -> None:
    key = f"asyncio {os.getpid()} {done['asyncio']}"
    done["asyncio"] += 1
    page = page_of(key, 4096)
    call = asyncio.create_task(client.set(key, page, timeout_s=TIMEOUT_S))
    await asyncio.sleep(dice.uniform(0, 0.002))
    call.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await call
    got = await client.get(key, len(page), timeout_s=TIMEOUT_S)
    if got not in (None, page):
        raise Wrong(f"{key} has other bytes")


def asyncio_thread(
    client: AsyncClient, until: float, problems: list[str], done: Counter[str]
) -> None:
    async def main() -> None:
        dice = random.Random(1)
        while time.monotonic() < until:
            await asyncio.gather(*(cancelled(client, dice, done) for _ in range(4)))

    try:
        asyncio.run(main())
    except Exception as error:
        problems.append(f"asyncio: {type(error).__name__}: {error}")


def in_child(client: Client, name: str, seconds: float) -> int:
    """Returns the exit code."""
    problems: list[str] = []
    run(Worker(client, name, os.getpid()), time.monotonic() + seconds, problems)
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


def new_process(path: str, name: str, seconds: float) -> None:
    with Client(path, "hammer", timeout_s=TIMEOUT_S) as client:
        sys.exit(in_child(client, f"{name} {os.getpid()}", seconds))


def interrupted(work: Callable[[], None], every_s: float) -> None:
    """Runs `work` while a timer signal raises Hit, and starts it again after each Hit."""
    while True:
        try:
            signal.setitimer(signal.ITIMER_REAL, every_s, every_s)
            Handler.raises = True
            try:
                work()
            finally:
                Handler.raises = False
            signal.setitimer(signal.ITIMER_REAL, 0)
            return
        except Hit:
            continue


def unraisable(what: sys.UnraisableHookArgs) -> None:
    """Ignores Hit: if the handler runs inside a finaliser, nobody can catch its exception."""
    if what.exc_type is not Hit:
        sys.__unraisablehook__(what)


def main(path: str, seconds: float, seed: int) -> int:
    warnings.filterwarnings("ignore", message=".*multi-threaded.*fork", category=DeprecationWarning)
    sys.unraisablehook = unraisable
    gc.set_threshold(50, 5, 5)
    dice, problems = random.Random(seed), list[str]()
    until = time.monotonic() + seconds
    client = Client(path, "hammer", timeout_s=TIMEOUT_S)
    asyncio_client = AsyncClient(path, "hammer", timeout_s=TIMEOUT_S)
    asyncio_done: Counter[str] = Counter()
    workers = [Worker(client, f"{os.getpid()} {i}", seed) for i in range(THREADS)]
    threads = [
        threading.Thread(target=run, args=(worker, until, problems)) for worker in workers[1:]
    ]
    threads.append(
        threading.Thread(
            target=asyncio_thread, args=(asyncio_client, until, problems, asyncio_done)
        )
    )
    for thread in threads:
        thread.start()
    others = [
        multiprocessing.get_context(how).Process(  # type: ignore[attr-defined]
            target=new_process, args=(path, how, max(CHILD_S, seconds / 2))
        )
        for how in ("spawn", "forkserver")
    ]
    for other in others:
        other.start()

    signal.signal(signal.SIGALRM, Handler.handle)
    children, forks = [], 0
    while time.monotonic() < until and not problems:
        round_ends = min(until, time.monotonic() + dice.uniform(0.05, 0.5))
        interrupted(lambda: run(workers[0], round_ends, problems), dice.uniform(0.0003, 0.02))  # noqa: B023
        pid = os.fork()
        if pid == 0:
            code = 2
            try:
                code = in_child(client, f"fork {os.getpid()}", min(CHILD_S, seconds))
            finally:
                os._exit(code)
        forks += 1
        children.append(pid)
    for thread in threads:
        thread.join()
    problems += [f"child {pid}" for pid in children if os.waitpid(pid, 0)[1] != 0]
    for other in others:
        other.join()
        if other.exitcode != 0:
            problems.append(f"{other.name} ended with {other.exitcode}")
    asyncio.run(asyncio_client.close())
    client.close()
    done = sum((worker.done for worker in workers), Counter({"fork": forks})) + asyncio_done
    print(", ".join(f"{count} {what}" for what, count in sorted(done.items())))
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3])))
