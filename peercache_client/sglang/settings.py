"""Our part of `--hicache-storage-backend-extra-config`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

from peercache_client.engine_settings import JudgingSettings

# Keys that SGLang itself reads.
_KEYS_OF_OTHERS: Final = frozenset(
    {
        "backend_name",
        "module_path",
        "class_name",
        "interface_v1",
        "allocator",
        "prefetch_threshold",
        "prefetch_timeout_base",
        "prefetch_timeout_per_ki_token",
        "hicache_storage_pass_prefix_keys",
        "tp_lcm_size",
        # sglang_plugin.py reads these when SGLang allocates memory.
        "huge_pages",
        "numa_node",
    }
)


@dataclass(frozen=True)
class Settings(JudgingSettings):
    zero_copy: bool = False  # SGLang's interface_v1
    allocator: str = ""  # as given to SGLang; only shown in advice

    # Detaching fails if SGLang's threads do not end within 10 s, so a call must be shorter.
    TIMEOUT_MAX_S: ClassVar[float] = 8.0

    @classmethod
    def parse(cls, extra_config: Mapping[str, Any] | None) -> Settings:
        """ValueError for an unknown key or an invalid value."""
        given = dict(extra_config or {})
        others = {key: given.pop(key) for key in _KEYS_OF_OTHERS if key in given}
        return replace(
            cls.checked(given, "--hicache-storage-backend-extra-config", _KEYS_OF_OTHERS),
            zero_copy=bool(others.get("interface_v1", 0)),
            allocator=str(others.get("allocator", "")),
        )
