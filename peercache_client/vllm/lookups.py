"""Lookups on a thread of their own. vLLM's class keeps the answers until their requests end."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from vllm.v1.kv_offload.tiering.async_lookup import AsyncLookupManager

from peercache_client.vllm.shared_slots import SharedSlots


class Lookups(AsyncLookupManager):  # type: ignore[misc]  # Any, where there is no vllm
    """All methods but `batch_lookup` are for the scheduler's thread."""

    def __init__(self, tier_type: str, slots: SharedSlots, page_tokens: int) -> None:
        self._slots = slots
        self._page_tokens = page_tokens
        super().__init__(tier_type=tier_type)

    def batch_lookup(self, keys: list[bytes], req_context: Any) -> Iterable[bool]:
        """The keys that one request asks for in one step of the scheduler."""
        return self._slots.present(keys, self._page_tokens)
