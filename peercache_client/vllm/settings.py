"""Our keys of the tier's entry in `secondary_tiers`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from peercache_client.engine_settings import JudgingSettings, seconds

# Keys of the entry that vLLM reads.
_KEYS_OF_VLLM: Final = frozenset(
    {"type", "module_path", "backpressure", "enable_kv_events", "locality"}
)
_WAIT_MAX_S: Final = 3.0  # vLLM kills an engine that takes 5 s to shut down


@dataclass(frozen=True)
class Settings(JudgingSettings):
    wait_s: float = 0.0  # of a request for chunks that are being stored elsewhere

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> Settings:
        """ValueError for an unknown key or an invalid value."""
        rest = {key: value for key, value in given.items() if key != "wait_s"}
        return replace(
            cls.checked(rest, "the tier's entry of secondary_tiers", _KEYS_OF_VLLM | {"wait_s"}),
            wait_s=seconds("wait_s", given.get("wait_s", 0.0), _WAIT_MAX_S, least=0.0),
        )
