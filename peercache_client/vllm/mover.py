"""Threads that move pages, so that the scheduler does not wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import NamedTuple

from peercache_client import Status
from peercache_client.rate_limited_log import RateLimitedLog


class Transfer(NamedTuple):
    """One job of vLLM: pages in the order of the prompt, and their slots."""

    job_id: int
    keys: Sequence[bytes]
    slots: Sequence[int]
    parent: bytes | None  # the page before the first one


class Outcome(NamedTuple):
    transfer: Transfer
    statuses: Sequence[Status]
    took_s: float  # without the wait for a thread


Move = Callable[[Sequence[bytes], Sequence[int], bytes | None], Sequence[Status]]


class Mover:
    """Thread safe. Each transfer ends in exactly one outcome, also if `move` raises.

    The threads are daemon threads: a frozen daemon must not keep the interpreter from ending.
    """

    def __init__(self, name: str, threads: int, move: Move) -> None:
        self._move = move
        self._log_rarely = RateLimitedLog()
        self._waiting: SimpleQueue[Transfer | None] = SimpleQueue()
        self._finished: SimpleQueue[Outcome] = SimpleQueue()
        self._unfinished = 0
        self._changed = threading.Condition()
        self._threads = [
            threading.Thread(target=self._run, name=f"{name}-{number}", daemon=True)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, transfer: Transfer) -> None:
        with self._changed:
            self._unfinished += 1
        self._waiting.put(transfer)

    def take_finished(self) -> list[Outcome]:
        """The outcomes since the last call."""
        outcomes: list[Outcome] = []
        try:
            while True:
                outcomes.append(self._finished.get_nowait())
        except Empty:
            return outcomes

    def wait_idle(self) -> None:
        """Returns when every submitted transfer has an outcome."""
        with self._changed:
            self._changed.wait_for(lambda: self._unfinished == 0)

    def close(self, timeout_s: float) -> bool:
        """Drops the transfers that have not begun. Returns whether all threads have ended; if not,
        one of them may still be moving a page."""
        try:
            while True:
                self._waiting.get_nowait()
        except Empty:
            pass
        for _ in self._threads:
            self._waiting.put(None)
        end_s = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, end_s - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _run(self) -> None:
        while (transfer := self._waiting.get()) is not None:
            began_s = time.monotonic()
            try:
                statuses = self._move(transfer.keys, transfer.slots, transfer.parent)
            except Exception as error:
                self._log_rarely.say("move", f"a transfer failed: {error}", trace=True)
                statuses = [Status.error] * len(transfer.keys)
            self._finished.put(Outcome(transfer, statuses, time.monotonic() - began_s))
            with self._changed:
                self._unfinished -= 1
                self._changed.notify_all()
