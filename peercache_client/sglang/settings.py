"""Our part of `--hicache-storage-backend-extra-config`."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from peercache_client.client import DEFAULT_SOCKET_PATH
from peercache_client.identity import check_text

# Detaching fails if SGLang's threads do not end within 10 s, so a call must be shorter.
_TIMEOUT_MAX_S: Final = 8.0
# Keys that SGLang itself reads.
_KEYS_OF_SGLANG: Final = frozenset(
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
    }
)
# Keys that peercache_client/sglang_plugin.py reads when SGLang allocates memory.
_KEYS_OF_PLUGIN: Final = frozenset({"huge_pages", "numa_node"})


@dataclass(frozen=True)
class Settings:
    """Keys that are not given have these defaults."""

    socket_path: str = DEFAULT_SOCKET_PATH
    timeout_s: float = 5.0  # per get or set of up to 128 pages
    model_revision: str = ""
    namespace: str = ""
    tenant: str = ""
    zero_copy: bool = False  # SGLang's interface_v1
    allocator: str = ""  # as given to SGLang; only shown in advice

    @classmethod
    def parse(cls, extra_config: Mapping[str, Any] | None) -> Settings:
        """ValueError for an unknown key or an invalid value."""
        given = dict(extra_config or {})
        ours = {}
        for key in ("socket_path", "model_revision", "namespace", "tenant"):
            if key in given:
                value = given.pop(key)
                check_text(key, value)
                ours[key] = value
        timeout_s = given.pop("timeout_s", cls.timeout_s)
        if not isinstance(timeout_s, (int, float)) or not 0 < timeout_s <= _TIMEOUT_MAX_S:
            raise ValueError(
                f"timeout_s is {timeout_s!r}: above 0 and at most {_TIMEOUT_MAX_S:g} seconds"
            )
        for key in given:
            if key not in _KEYS_OF_SGLANG | _KEYS_OF_PLUGIN:
                raise ValueError(_unknown(key))
        return cls(
            timeout_s=float(timeout_s),
            zero_copy=bool(given.get("interface_v1", 0)),
            allocator=str(given.get("allocator", "")),
            **ours,
        )


def _unknown(key: str) -> str:
    ours = {"socket_path", "timeout_s", "model_revision", "namespace", "tenant"}
    known = sorted(_KEYS_OF_SGLANG | _KEYS_OF_PLUGIN | ours)
    near = difflib.get_close_matches(key, known, 1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return (
        f"unknown key {key!r} in --hicache-storage-backend-extra-config: {hint}"
        f"known are {', '.join(known)}"
    )
