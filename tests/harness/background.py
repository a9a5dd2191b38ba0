"""Repeats an action while the test does something else."""

import threading
from collections.abc import Callable
from typing import TypeVar

from harness.waiting import eventually

Kind = TypeVar("Kind", bound="Background")  # Python 3.10 has no typing.Self


class Background:
    """Repeats an action on a thread until the block ends, then re-raises its exception. `pause_s`
    after each round leaves the processor to others."""

    def __init__(self, action: Callable[[], object], pause_s: float = 0.0) -> None:
        self._action = action
        self._pause_s = pause_s
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self.rounds = 0
        self.ended = False
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._action()
                self.rounds += 1
                self._stop.wait(self._pause_s)
        except BaseException as failure:
            self._failure = failure
        finally:
            self.ended = True

    def __enter__(self: Kind) -> Kind:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def wait_rounds(self, count: int) -> None:
        """Waits until `count` more rounds have ended, or the action has failed. The first of them
        may have begun earlier. To wait for an event, wait for it directly, not for rounds."""
        until = self.rounds + count
        eventually(lambda: self.rounds >= until or self.ended, 30)
