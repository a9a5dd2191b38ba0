"""The hashes of objects for events, as in LMCache's own events (docs/routers.md).

LMCache's server names a chunk by its hash (KVEventRecord). Its connector in vLLM converts the hash
as vLLM does with those of blocks, for events that vLLM publishes.
"""

from __future__ import annotations

import os
from typing import Any, Final

from peercache_client.page_names import HASH_BYTES_MAX, UNTOLD, PageHash

_INTEGERS: Final = "VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES"
_BITS_64: Final = (1 << 64) - 1


def uses_integers() -> bool:
    """vLLM's setting, in the server's environment. ValueError."""
    given = os.environ.get(_INTEGERS, "1")
    try:
        return bool(int(given))
    except ValueError:
        raise ValueError(f"{_INTEGERS} is {given!r}: 0 or 1, as at vLLM") from None


def event_hash(object_key: Any, integers: bool) -> PageHash:
    """`object_key`: LMCache's ObjectKey. A chunk is named by the object of the first rank and
    group: the others come with it."""
    rank = object_key.kv_rank >> 16 & 0xFF  # as ComputeKVRank packs it
    if rank or object_key.object_group_id:
        return UNTOLD
    chunk_hash: bytes = object_key.chunk_hash
    if integers:
        return int.from_bytes(chunk_hash, "big") & _BITS_64
    return chunk_hash if 1 <= len(chunk_hash) <= HASH_BYTES_MAX else None
