"""Files that the daemon reads again when they change, without a restart.

If the new contents cannot be used, the old ones stay in force, and `status` explains the problem.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

log = logging.getLogger(__name__)

LOOK_S = 2.0

_T = TypeVar("_T")


class FileProblem(Exception):
    """The files cannot be used; the text says why and what to do."""


class WatchedFiles(Generic[_T]):
    """`read` loads the files at `paths`, or raises FileProblem; so does the constructor. The log
    calls them `what`. `generation` rises with new contents. `current` may be read from any thread;
    all else is for one thread at a time."""

    def __init__(self, what: str, paths: Sequence[str], read: Callable[[], _T]) -> None:
        self._what = what
        self._paths = paths
        self._read = read
        self._seen = self._signature()
        self.current = read()
        self.generation = 1
        self.problem = ""

    async def changes(self) -> AsyncIterator[_T]:
        """Checks the files every LOOK_S seconds. Yields new contents when they are in force."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(LOOK_S)
            if await loop.run_in_executor(None, self.look):
                yield self.current

    def look(self) -> bool:
        """Loads changed files; True if new contents are in force."""
        signature = self._signature()
        if signature == self._seen and not self.problem:
            return False
        try:
            found = self._read()
        except Exception as error:  # parsers of broken contents may raise anything
            problem = str(error) or type(error).__name__
            if problem != self.problem:
                log.warning(
                    "%s changed but cannot be used: %s (the old contents stay in use)",
                    self._what,
                    problem,
                )
            self.problem = problem
            return False
        self._seen, self.problem = signature, ""
        if found == self.current:
            return False
        self.current = found
        self.generation += 1
        return True

    def _signature(self) -> tuple[tuple[int, int, int, int], ...]:
        found = []
        for path in self._paths:
            try:
                status = Path(path).stat()
                found.append((status.st_ino, status.st_size, status.st_mtime_ns, status.st_mode))
            except OSError:
                found.append((0, 0, 0, 0))
        return tuple(found)
