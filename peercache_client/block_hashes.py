"""The hashes of pages for events, as SGLang's own events have them (docs/routers.md). The remote KV
connector has the same page hashes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from peercache_client.identity import Topology
from peercache_client.page_names import UNTOLD, PageHash

# Pool of the pages that stand for a block. Other pools have pages of the same hashes.
MAIN_POOL = "kv"


def event_hash(page_hash: str) -> int | None:
    """Of a page's SHA-256, in hexadecimal: sglang.srt.mem_cache.utils.hash_str_to_int64."""
    try:
        number = int(page_hash[:16], 16)
    except ValueError:
        return None
    return number - (1 << 64) if number >= 1 << 63 else number


def names(
    topology: Topology, wanted: Iterable[tuple[str, Sequence[str], int, int]]
) -> dict[str, Any]:
    """The options of a `batch_set`. `wanted`: pool, hashes of its pages, pieces and tokens of a
    page. A block is named by the first piece at the first rank: the others come with it."""
    found: list[PageHash] = []
    block_tokens = 0
    for pool, hashes, pieces, tokens in wanted:
        if not topology.is_first or pool != MAIN_POOL:
            found += [UNTOLD] * (len(hashes) * pieces)
            continue
        block_tokens = tokens
        for each in hashes:
            found.append(event_hash(each))
            found += [UNTOLD] * (pieces - 1)
    return {"hashes": found, "block_tokens": block_tokens}
