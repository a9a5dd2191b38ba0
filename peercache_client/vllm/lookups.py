"""Lookups on a thread of their own. vLLM's class keeps the answers until their requests end.

With `wait_s`, chunks that no node has yet may come: a decode host asks for a prompt before its
prefill host has stored it. Then threads wait for the rest of the prompt, and vLLM retries the
request, and only this one, until they know.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

from vllm.v1.kv_offload.tiering.async_lookup import AsyncLookupManager

from peercache_client import Cancel
from peercache_client.tasks import Tasks
from peercache_client.vllm.shared_slots import SharedSlots
from peercache_client.worth import Worth

# So many requests wait at most, because each uses a connection to the daemon. Others do not wait.
_WAITS_MAX: Final = 16


class _Wait:
    """For the chunks of a request's prompt, in order. Other requests may wait for some of them."""

    def __init__(self, keys: list[bytes], missing: bytes, end_s: float) -> None:
        self.requests: set[str] = set()
        self.cancel = Cancel()
        self.keys = keys
        self.missing = missing  # the first one that no node had
        self.end_s = end_s  # of time.monotonic()
        self.arrived: frozenset[bytes] | None = None  # None: it still waits


class Lookups(AsyncLookupManager):  # type: ignore[misc]  # Any, where there is no vllm
    """All methods but `batch_lookup` are for the scheduler's thread."""

    def __init__(
        self,
        tier_type: str,
        slots: SharedSlots,
        page_tokens: int,
        worth: Worth,
        wait_s: float = 0.0,
    ) -> None:
        """Without `page_tokens` it waits for nothing: of several groups of layers, some never have
        all chunks."""
        self._slots = slots
        self._worth = worth
        self._page_tokens = page_tokens
        self._wait_s = wait_s if page_tokens else 0.0
        # The waits begin on vLLM's thread of lookups, and end with their last request.
        self._lock = threading.Lock()
        self._waits: dict[bytes, _Wait] = {}
        self._waits_of: dict[str, set[_Wait]] = {}  # by request
        self._requests_of: dict[bytes, set[str]] = {}  # that have asked for a chunk
        self._keys_of: dict[str, set[bytes]] = {}  # by request
        self._waited: set[str] = set()  # requests whose own question has begun a wait
        self._waiting: Tasks[_Wait, None] | None = None
        if self._wait_s:
            self._waiting = Tasks("peercache-wait", _WAITS_MAX, self._wait_for, _nothing)
        super().__init__(tier_type=tier_type)

    def batch_lookup(self, keys: list[bytes], req_context: Any) -> Iterable[bool]:
        """The keys that one request asks for in one step of the scheduler, in the order of its
        prompt. Chunks that are quicker to compute than to load count as missing."""
        forecast = self._slots.forecast(keys, self._page_tokens)
        present = forecast.present
        best = self._worth.judge(keys, forecast)
        if best < len(keys) and present[best]:
            return [there and i < best for i, there in enumerate(present)]
        if not all(present) and self._may_wait(req_context.req_id):
            self._begin_wait(req_context.req_id, keys, present)
        return present

    def _may_wait(self, req_id: str) -> bool:
        """Only for the first question, that for its prompt. After a preemption vLLM also asks for
        chunks of generated tokens."""
        if self._waiting is None or req_id in self._waited:
            return False
        return self._waiting.unfinished < _WAITS_MAX

    def _begin_wait(self, req_id: str, keys: list[bytes], present: Sequence[bool]) -> None:
        """For the requests that still want the first missing chunk. The one that asked may have
        ended."""
        assert self._waiting is not None
        wait = _Wait(keys, keys[present.index(False)], time.monotonic() + self._wait_s)
        with self._lock:
            for asker in self._requests_of.get(wait.missing, ()):
                self._join(wait, asker)
            if not wait.requests:
                return
            if req_id in self._keys_of:
                self._waited.add(req_id)
            for key, there in zip(keys, present, strict=True):
                if not there:
                    self._waits[key] = wait
        self._waiting.submit(wait)

    def _join(self, wait: _Wait, req_id: str) -> None:
        wait.requests.add(req_id)
        self._waits_of.setdefault(req_id, set()).add(wait)

    def _wait_for(self, wait: _Wait) -> None:
        left_s = max(0.0, wait.end_s - time.monotonic())
        try:
            count = self._slots.wait_for(wait.keys, self._page_tokens, left_s, wait.cancel)
        except BaseException:
            wait.arrived = frozenset()  # or the request would be retried for ever
            raise
        wait.arrived = frozenset(wait.keys[:count])

    def lookup(self, key: bytes, req_context: Any) -> bool | None:
        found: bool | None = super().lookup(key, req_context)
        if self._waiting is None or found:
            return found
        with self._lock:
            self._requests_of.setdefault(key, set()).add(req_context.req_id)
            self._keys_of.setdefault(req_context.req_id, set()).add(key)
            wait = self._waits.get(key)
            if wait is None or found is None:
                return found
            self._join(wait, req_context.req_id)
        if wait.arrived is None:
            # One chunk to ask again for is enough, and ends vLLM's loop over the others.
            return None if key == wait.missing else False
        return key in wait.arrived

    def flush(self) -> None:
        super().flush()
        if self._waiting is not None:
            self._waiting.take_all()  # the results are in the waits

    def mark_miss(self, keys: Collection[bytes]) -> None:
        super().mark_miss(keys)
        for key in keys:
            self._waits.pop(key, None)

    def cleanup(self, req_id: str) -> None:
        super().cleanup(req_id)
        with self._lock:
            self._waited.discard(req_id)
            for key in self._keys_of.pop(req_id, ()):
                self._requests_of[key].discard(req_id)
                if not self._requests_of[key]:
                    del self._requests_of[key]
            for wait in self._waits_of.pop(req_id, ()):
                wait.requests.discard(req_id)
                if wait.requests:
                    continue
                wait.cancel.cancel()
                for key in wait.keys:
                    if self._waits.get(key) is wait:
                        del self._waits[key]

    def shutdown(self) -> None:
        super().shutdown()
        for wait in set(self._waits.values()):
            wait.cancel.cancel()
        if self._waiting is not None:
            self._waiting.close(time.monotonic())  # they write nothing


def _nothing(wait: _Wait) -> None:
    return None
