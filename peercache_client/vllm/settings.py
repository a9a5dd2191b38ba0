"""Our keys of the tier's entry in `secondary_tiers`."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from peercache_client.client import DEFAULT_SOCKET_PATH
from peercache_client.identity import check_text

_TIMEOUT_MAX_S: Final = 60.0
# Keys of the entry that vLLM reads.
_KEYS_OF_VLLM: Final = frozenset(
    {"type", "module_path", "backpressure", "enable_kv_events", "locality"}
)


@dataclass(frozen=True)
class Settings:
    """Keys that are not given have these defaults."""

    socket_path: str = DEFAULT_SOCKET_PATH
    timeout_s: float = 5.0  # per get or set of up to 128 chunks
    model_revision: str = ""
    namespace: str = ""
    tenant: str = ""

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> Settings:
        """ValueError for an unknown key or an invalid value."""
        known = {field.name for field in fields(cls)}
        for key in given:
            if key not in known:
                raise ValueError(_unknown(key, known | _KEYS_OF_VLLM))
        for key in known - {"timeout_s"}:
            check_text(key, given.get(key, ""))
        timeout_s = given.get("timeout_s", cls.timeout_s)
        if not isinstance(timeout_s, (int, float)) or not 0 < timeout_s <= _TIMEOUT_MAX_S:
            raise ValueError(
                f"timeout_s is {timeout_s!r}: above 0 and at most {_TIMEOUT_MAX_S:g} seconds"
            )
        return cls(**given)


def _unknown(key: str, known: set[str]) -> str:
    near = difflib.get_close_matches(key, sorted(known), 1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return (
        f"unknown key {key!r} in the tier's entry of secondary_tiers: {hint}"
        f"known are {', '.join(sorted(known))}"
    )
