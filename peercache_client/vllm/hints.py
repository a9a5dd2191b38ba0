"""Hints of requests: the envelope goes to the daemon, with the chunks of the request's prompt.

vLLM hands an envelope to the tier with each request that has one. Its actions are about that
prompt, unless they name pages. The daemon executes them; a hint never delays or fails its request.
"""

from __future__ import annotations

from typing import Any

from peercache_client.hint_queue import HintQueue, Send


class Hints:
    """All methods are for the scheduler's thread. None waits."""

    def __init__(self, send: Send) -> None:
        self._queue = HintQueue(send)
        # By request: its context, and the chunks that vLLM has asked for, in order.
        self._waiting: dict[str, tuple[Any, dict[bytes, None]]] = {}

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
        req_context, keys = found
        positions = req_context._offload_key_positions
        chunks = list(keys) or sorted(positions, key=positions.__getitem__)
        self._queue.submit(req_context.kv_hints, chunks)

    def wait_idle(self) -> None:
        self._queue.wait_idle()

    def close(self, end_s: float) -> None:
        self._queue.close(end_s)
