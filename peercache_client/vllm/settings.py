"""Our keys of the tier's entry in `secondary_tiers`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from peercache_client.engine_settings import EngineSettings

# Keys of the entry that vLLM reads.
_KEYS_OF_VLLM: Final = frozenset(
    {"type", "module_path", "backpressure", "enable_kv_events", "locality"}
)


class Settings(EngineSettings):
    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> Settings:
        """ValueError for an unknown key or an invalid value."""
        return cls.checked(given, "the tier's entry of secondary_tiers", _KEYS_OF_VLLM)
