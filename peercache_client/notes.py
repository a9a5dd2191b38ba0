"""What the client tells the program's log."""

from __future__ import annotations

import contextlib
import logging

log = logging.getLogger("peercache_client")


def say(level: int, text: str, *arguments: object, trace: bool = False) -> None:
    """A handler of the program's that raises ends no call of ours. `trace`: of the exception that
    is being handled."""
    with contextlib.suppress(Exception):
        log.log(level, text, *arguments, exc_info=trace)
