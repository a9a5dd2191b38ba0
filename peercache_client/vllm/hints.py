"""Hints of requests: the envelope goes to the daemon, with the chunks of the request's prompt.

vLLM hands an envelope to the tier with each request that has one. Its actions are about that
prompt, unless they name pages. The daemon executes them; a hint never delays or fails its request.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from peercache_client.rate_limited_log import RateLimitedLog
from peercache_client.tasks import Tasks

# Envelopes that wait for the daemon. More are dropped: a late hint is worth nothing.
_WAITING_MAX: Final = 256

Send = Callable[[bytes, Sequence[bytes]], object]


class Hints:
    """All methods are for the scheduler's thread. None waits."""

    def __init__(self, send: Send) -> None:
        """`send`: hands an envelope on, with the keys of the request's chunks; it may wait."""
        self._send = send
        self._log_rarely = RateLimitedLog()
        # By request: its context, and the chunks that vLLM has asked for, in order.
        self._waiting: dict[str, tuple[Any, dict[bytes, None]]] = {}
        self._tasks: Tasks[tuple[Any, list[bytes]], None] | None = None

    def begin(self, req_context: Any) -> None:
        if getattr(req_context, "kv_hints", None) is not None:  # since vllm 0.32
            self._waiting[req_context.req_id] = (req_context, {})

    def asked(self, req_id: str, key: bytes) -> None:
        """vLLM looks a chunk of the request up."""
        if self._waiting and (found := self._waiting.get(req_id)) is not None:
            found[1][key] = None

    def flush(self) -> None:
        """Sends the hints of the requests that have asked for their prompts in this step."""
        for req_id in [one for one, (_, keys) in self._waiting.items() if keys]:
            self.end(req_id)

    def end(self, req_id: str) -> None:
        """Sends the hints of the request now, if they wait. vLLM did not ask for its chunks if it
        has all in its own memory: then they are about all chunks of the request."""
        if (found := self._waiting.pop(req_id, None)) is None:
            return
        if self._tasks is None:
            self._tasks = Tasks("peercache-hint", 1, self._hand_on, lambda _: None)
        self._tasks.take_all()
        if self._tasks.unfinished >= _WAITING_MAX:
            self._log_rarely.say("full", f"dropped hints: {_WAITING_MAX} wait for the daemon")
            return
        req_context, keys = found
        positions = req_context._offload_key_positions
        chunks = list(keys) or sorted(positions, key=positions.__getitem__)
        self._tasks.submit((req_context.kv_hints, chunks))

    def _hand_on(self, hints: tuple[Any, list[bytes]]) -> None:
        envelope, keys = hints
        try:
            self._send(msgspec.json.encode(envelope), keys)
        except (TypeError, ValueError) as error:  # it is too large, or no JSON
            self._log_rarely.say("refused", f"hints were not handed on: {error}")

    def close(self, end_s: float) -> None:
        if self._tasks is not None:
            self._tasks.close(end_s)
