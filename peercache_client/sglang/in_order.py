"""One thread that runs jobs in order."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final

from peercache_client.rate_limited_log import RateLimitedLog


class InOrder:
    """Thread safe. A job that raises is logged, and the next one runs."""

    def __init__(self, name: str, log_rarely: RateLimitedLog) -> None:
        self._name: Final = name
        self._log_rarely = log_rarely
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, job: Callable[[], None]) -> None:
        self._jobs.put(job)

    def wait(self) -> None:
        """Returns when all jobs that were put before have ended. Not after `close`."""
        reached = threading.Event()
        self._jobs.put(reached.set)
        reached.wait()

    def close(self) -> None:
        """Ends the thread after the last job. Jobs that are put later never run."""
        self._jobs.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except Exception as error:
                self._log_rarely.say(
                    self._name, f"{self._name} failed, which is a bug: {error}", trace=True
                )
            del job  # it keeps tensors and events alive
