"""Requests over this process's connections to the daemon; implemented in native/client/."""

from __future__ import annotations

import functools
import logging
import os
import time
from collections.abc import Callable, Sequence
from typing import Any, Concatenate, Final, NamedTuple, ParamSpec, TypeVar

from peercache_client import _ipc
from peercache_client.notes import say
from peercache_client.status import Status
from peercache_client.wire import Op

# How long a get that timed out waits for the daemon to end its current write.
SILENCE_TIMEOUT_S: Final = 1.0

_REPLY, _REFUSED, _LATE = range(3)
_COMPLAINTS_MAX: Final = 64

P = ParamSpec("P")
T = TypeVar("T")

os.register_at_fork(after_in_child=_ipc.abandon_connections)


class Reply(NamedTuple):
    value: int
    body: bytes


class Session:
    """The connections of one process. If the fork interrupted a call, that call is a miss in the
    child."""

    def __init__(self, path: bytes, namespace: bytes, name: bytes) -> None:
        self.pid = os.getpid()
        self._settings = (path, namespace, name)
        self._native = _ipc.Session(path, namespace, name)
        self._complained: set[tuple[int, str]] = set()

    def of_child(self) -> Session:
        """A new session for a forked child. It shares nothing with the parent's."""
        session = Session(*self._settings)
        if self._native.closed:
            session.close()
        return session

    def ask(
        self,
        op: int,
        flags: int,
        count: int,
        end: float,
        body: tuple[bytes, ...] = (),
        segments: Sequence[_ipc.Segment] = (),
        silence_s: float | None = SILENCE_TIMEOUT_S,
        caller: bytes = b"",
        landed: Callable[[int], None] | None = None,
        cancel: _ipc.Cancel | None = None,
        answer_by: float | None = None,
    ) -> Reply | Status:
        """Returns the reply, or a Status that applies to all pages. `end` is a time.monotonic()
        time, and so is `answer_by`, when the daemon gives up. `caller`: see spans.CallSpan.
        `landed`: called with the stages that have landed. An exception in it ends the call.
        `cancel`: ends it from another thread."""
        result, error, value, answer = self._native.ask(
            op,
            flags,
            count,
            body,
            list(segments),
            end,
            silence_s,
            caller,
            landed,
            cancel,
            answer_by,
        )
        self._say_notes()
        if result == _REPLY:
            return Reply(value, answer)
        if result == _REFUSED:
            text = answer.decode(errors="replace")
            # A hint is refused for what its envelope says: each reason is news.
            complaint = (error, text if op == Op.hint else "")
            if complaint not in self._complained and len(self._complained) < _COMPLAINTS_MAX:
                self._complained.add(complaint)
                say(logging.WARNING, "the daemon refuses a request: %s (said once)", text)
            return Status.error
        return Status.deadline if result == _LATE else Status.no_daemon

    def note_took(self, op: int, seconds: float) -> None:
        """For the daemon's metrics: how long a call of SET, GET or EXISTS took."""
        self._native.note_took(op - Op.set + 1, seconds)

    def sweep(self, end: float) -> None:
        """Tells the daemon about closed regions."""
        self._native.sweep(end)
        self._say_notes()

    def place_to_wait(self, end: float, cancel: _ipc.Cancel) -> _ipc.Slot | None:
        """To be kept while a call waits for pages. None: it must not wait."""
        return self._native.place_to_wait(end, cancel)

    def stop(self) -> None:
        """Ends waits for pages. Later calls return misses."""
        self._native.stop()

    def close(self) -> None:
        """As `stop`. Waits for other requests that run. Their timeouts bound the wait."""
        self._native.close()

    @property
    def last_error(self) -> str:
        return self._native.last_error.decode(errors="replace")

    @property
    def reconnects(self) -> int:
        return self._native.reconnects

    def _say_notes(self) -> None:
        if self._native.has_notes:
            for loud, text in self._native.take_notes():
                level = logging.ERROR if loud else logging.WARNING
                say(level, "%s", text.decode(errors="replace"))


def timed(
    op: Op,
) -> Callable[[Callable[Concatenate[Any, P], T]], Callable[Concatenate[Any, P], T]]:
    """Decorates a method of Client that is one call of `op`: the daemon learns how long the caller
    waited by our own clock. Calls that raise do not count, nor those that wait for pages."""

    def decorate(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
        @functools.wraps(method)
        def call(client: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
            began = time.monotonic()
            result = method(client, *args, **kwargs)
            if not kwargs.get("wait_s"):
                client._session().note_took(op, time.monotonic() - began)
            return result

        return call

    return decorate
