"""Our keys of `adapter_params`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from peercache_client.engine_settings import JudgingSettings

_CHUNK_TOKENS_MAX: Final = 1 << 20


@dataclass(frozen=True)
class Settings(JudgingSettings):
    chunk_tokens: int = 256  # LMCache's --chunk-size, which it does not tell us

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> Settings:
        """ValueError for an unknown key or an invalid value."""
        rest = {key: value for key, value in given.items() if key != "chunk_tokens"}
        tokens = given.get("chunk_tokens", cls.chunk_tokens)
        whole = isinstance(tokens, int) and not isinstance(tokens, bool)
        if not whole or not 1 <= tokens <= _CHUNK_TOKENS_MAX:
            raise ValueError(
                f"chunk_tokens is {tokens!r}: a whole number from 1 to {_CHUNK_TOKENS_MAX}"
            )
        parsed = cls.checked(
            rest, "the adapter_params of the L2 adapter", frozenset({"chunk_tokens"})
        )
        return replace(parsed, chunk_tokens=tokens)
