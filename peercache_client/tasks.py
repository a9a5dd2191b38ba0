"""Threads that run one kind of an engine's tasks, so that its own threads do not wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

from peercache_client.rate_limited_log import RateLimitedLog

T = TypeVar("T")
R = TypeVar("R")


class Tasks(Generic[T, R]):
    """Thread safe. Each task has exactly one result, also if `run` raises: that of `miss`.

    The threads are daemon threads: a frozen daemon must not keep the interpreter from ending.
    """

    def __init__(
        self,
        name: str,
        threads: int,
        run: Callable[[T], R],
        miss: Callable[[T], R],
        notify: Callable[[], object] = lambda: None,
    ) -> None:
        """`notify`: called on a task's thread when its result can be taken."""
        self._name = name
        self._run_task = run
        self._miss = miss
        self._notify = notify
        self._log_rarely = RateLimitedLog()
        self._waiting: SimpleQueue[tuple[int, T] | None] = SimpleQueue()
        self._lock = threading.Condition()
        self._submitted = 0
        self._ended = 0
        self._results: dict[int, R] = {}
        self._threads = [
            threading.Thread(target=self._run, name=f"{name}-{number}", daemon=True)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, task: T) -> int:
        """The number of the task. Never waits."""
        with self._lock:
            number = self._submitted
            self._submitted += 1
        self._waiting.put((number, task))
        return number

    def take(self, number: int) -> R | None:
        """A task's result, once. None while it has none."""
        with self._lock:
            return self._results.pop(number, None)

    def take_all(self) -> dict[int, R]:
        """The results since the last call, in the order of their ends."""
        with self._lock:
            results, self._results = self._results, {}
            return results

    def wait_idle(self) -> None:
        """Returns when every submitted task has a result."""
        with self._lock:
            self._lock.wait_for(lambda: self._ended == self._submitted)

    @property
    def unfinished(self) -> int:
        with self._lock:
            return self._submitted - self._ended

    @property
    def alive(self) -> bool:
        return all(thread.is_alive() for thread in self._threads)

    def close(self, end_s: float) -> bool:
        """Drops the tasks that have not begun. Returns whether all threads have ended by `end_s`, a
        time.monotonic(). If not, one of them may still be moving a page."""
        try:
            while True:
                self._waiting.get_nowait()
        except Empty:
            pass
        for _ in self._threads:
            self._waiting.put(None)
        for thread in self._threads:
            thread.join(max(0.0, end_s - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _run(self) -> None:
        while (waiting := self._waiting.get()) is not None:
            number, task = waiting
            try:
                result = self._run_task(task)
            except Exception as error:
                self._log_rarely.say(
                    "task", f"{self._name} failed, which is a bug: {error}", trace=True
                )
                result = self._miss(task)
            with self._lock:
                self._results[number] = result
                self._ended += 1
                self._lock.notify_all()
            self._notify()
