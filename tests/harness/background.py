"""An action that is repeated while the test does something else."""

import threading
from collections.abc import Callable
from typing import TypeVar

from harness.waiting import eventually

Kind = TypeVar("Kind", bound="Background")  # Python 3.10 has no typing.Self


class Background:
    """Repeats an action on a thread until the block ends; its exceptions are ours."""

    def __init__(self, action: Callable[[], object]) -> None:
        self._action = action
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
        """Until the action has been done so often from now on, or has failed. The last round may
        have begun before. For what takes time, wait for that, not for rounds of something else."""
        until = self.rounds + count
        eventually(lambda: self.rounds >= until or self.ended, 30)
