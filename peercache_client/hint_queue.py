"""Hands envelopes of hints on from an engine, on a thread: no request waits for a hint."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

from peercache_client.rate_limited_log import RateLimitedLog
from peercache_client.tasks import Tasks
from peercache_client.wire import Key

# Envelopes that wait for the daemon. More are dropped: a late hint is worth nothing.
_WAITING_MAX: Final = 256

Send = Callable[[bytes, Sequence[Key]], object]


class HintQueue:
    """Thread safe."""

    def __init__(self, send: Send) -> None:
        """`send`: hands an envelope on, with the keys of the pages of its request. It may wait."""
        self._send = send
        self._log_rarely = RateLimitedLog()
        self._starting = threading.Lock()
        self._tasks: Tasks[tuple[Any, Sequence[Key]], None] | None = None

    def submit(self, envelope: Any, keys: Sequence[Key]) -> None:
        """`envelope`: as the engine has it, or JSON. Never waits, and never raises."""
        with self._starting:
            if self._tasks is None:  # most engines never get a hint
                self._tasks = Tasks("peercache-hint", 1, self._hand_on, lambda _: None)
        self._tasks.take_all()
        if self._tasks.unfinished >= _WAITING_MAX:
            self._log_rarely.say("full", f"dropped hints: {_WAITING_MAX} wait for the daemon")
            return
        self._tasks.submit((envelope, keys))

    def _hand_on(self, hints: tuple[Any, Sequence[Key]]) -> None:
        envelope, keys = hints
        try:
            self._send(_json(envelope), keys)
        except (TypeError, ValueError) as error:  # it is too large, or no JSON
            self._log_rarely.say("refused", f"hints were not handed on: {error}")

    def wait_idle(self) -> None:
        """Returns when all that was submitted is handed on."""
        if self._tasks is not None:
            self._tasks.wait_idle()

    def close(self, end_s: float) -> None:
        """Drops the envelopes that wait. `end_s`: a time.monotonic()."""
        if self._tasks is not None:
            self._tasks.close(end_s)


def _json(envelope: Any) -> bytes:
    if isinstance(envelope, (bytes, str)):
        return envelope.encode() if isinstance(envelope, str) else envelope
    import msgspec  # of the engine, whose envelopes are its structs

    packed: bytes = msgspec.json.encode(envelope)
    return packed
