"""Rate limit for log lines that could come with every page."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

from peercache_client.notes import say

F = TypeVar("F", bound=Callable[..., Any])

_PAUSE_S: Final = 30.0


class RateLimitedLog:
    """Logs each kind of message at most once in 30 s, with the number of skipped ones. Thread
    safe."""

    def __init__(self) -> None:
        self._said: dict[str, tuple[float, int]] = {}

    def say(self, kind: str, text: str, *, trace: bool = False) -> None:
        now = time.monotonic()
        # No lock, because a signal handler may interrupt us. An extra line does no harm.
        when, unsaid = self._said.get(kind, (-_PAUSE_S, 0))
        if now - when < _PAUSE_S:
            self._said[kind] = (when, unsaid + 1)
            return
        self._said[kind] = (now, 0)
        more = f" ({unsaid} times more since the last line)" if unsaid else ""
        say(logging.WARNING, "%s%s", text, more, trace=trace)


def never_raises(miss: Callable[..., Any]) -> Callable[[F], F]:
    """Decorator: a method that raises returns `miss(self, *arguments)`, and the error is logged. An
    exception would end the engine's scheduler, and with it all requests."""

    def wrap(method: F) -> F:
        @functools.wraps(method)
        def guarded(self: Any, *arguments: Any, **named: Any) -> Any:
            try:
                return method(self, *arguments, **named)
            except Exception as error:
                name = method.__name__
                self._log_rarely.say(name, f"{name} failed, which is a bug: {error}", trace=True)
                return miss(self, *arguments, *named.values())

        return cast(F, guarded)

    return wrap
