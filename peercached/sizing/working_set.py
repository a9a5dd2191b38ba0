"""Memory for so many users with so long prompts."""

from __future__ import annotations

import math
from dataclasses import dataclass

from peercached.sizing.models import Model

RECORD_BYTES = 48  # of a page, at each owner
SLOT_HEADER_BYTES = 64
# Not all of a pool can hold pages: background eviction keeps the rest free.
USABLE = 0.96


@dataclass(frozen=True)
class Plan:
    """Bytes, unless the name says otherwise. `page`: the KV of one page over all ranks."""

    bytes_per_token: float
    page: float
    pages: int
    working_set: float
    pool_per_node: int
    records_per_owner: int  # in its part of the directory
    directory_per_owner: float


def plan(
    model: Model,
    dtype: str,
    *,
    context_tokens: int,
    users: int,
    shared_tokens: int,
    nodes: int,
    owners: int,
    page_tokens: int,
    pieces_per_page: int,
    tp: int = 1,
    replicas: int = 2,
) -> Plan:
    """Memory to keep the prompts of `users` at once. The first `shared_tokens` of each (a system
    prompt) are the same for all and kept once. `pieces_per_page`: keys that the engine stores for a
    page, over all its ranks (two for each rank with SGLang's page_first layout). `owners`: how many
    of the nodes keep the directory (directory/owner_choice.py)."""
    # Ranks beyond the number of KV heads store their heads again, each under keys of its own.
    copies = max(1.0, tp / model.kv_heads) if model.kv_heads else 1.0
    per_token = model.bytes_per_token(dtype) * copies
    own_tokens = max(context_tokens - shared_tokens, 0)
    tokens = users * own_tokens + min(shared_tokens, context_tokens)
    pages = math.ceil(tokens / page_tokens)
    page = per_token * page_tokens
    records = pages * pieces_per_page
    working_set = pages * page + records * SLOT_HEADER_BYTES
    records_per_owner = math.ceil(records * min(replicas, owners) / owners)
    return Plan(
        per_token,
        page,
        pages,
        working_set,
        math.ceil(working_set / nodes / USABLE),
        records_per_owner,
        records_per_owner * RECORD_BYTES,
    )
