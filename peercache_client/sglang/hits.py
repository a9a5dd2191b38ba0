"""Computes, from the existing pages, which prefix lengths can be restored.

The policies are those of SGLang's `PoolHitPolicy`:

- all_pages: every page of the prefix must exist for this pool
- trailing_pages: only a window at the end of the prefix must exist
- block_groups: whole groups of keys; the pool reports how far they reach and forbids no length
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple


class PoolVerdict(NamedTuple):
    pages: int  # length of the prefix that this pool reaches
    restorable: frozenset[int] | None  # allowed prefix lengths; None: all


def leading(present: Sequence[bool]) -> int:
    """The number of present pages before the first missing one."""
    try:
        return list(present).index(False)
    except ValueError:
        return len(present)


def all_pages(present: Sequence[bool], kv_pages: int) -> PoolVerdict:
    reach = leading(present[:kv_pages])
    return PoolVerdict(reach, frozenset(range(1, reach + 1)))


def trailing_pages(present: Sequence[bool], kv_pages: int, window_pages: int) -> PoolVerdict:
    """A length is allowed if the window that ends there is complete. So 5 may be allowed when 4 and
    3 are not."""
    allowed = []
    run = 0
    for length in range(1, kv_pages + 1):
        run = run + 1 if present[length - 1] else 0
        if run >= min(window_pages, length):
            allowed.append(length)
    return PoolVerdict(allowed[-1] if allowed else 0, frozenset(allowed))


def block_groups(
    present: Sequence[bool], group_pages: int, block_pages: int, pages: int
) -> PoolVerdict:
    """`present`: for the keys of all groups, in order. Each complete group covers one block."""
    whole = leading(present) // max(1, group_pages)
    return PoolVerdict(min(whole * max(1, block_pages), pages), None)


def restorable_lengths(kv_pages: int, verdicts: Sequence[PoolVerdict]) -> list[int]:
    """The lengths that every pool allows, ascending."""
    lengths = set(range(1, kv_pages + 1))
    for verdict in verdicts:
        if verdict.restorable is not None:
            lengths &= verdict.restorable
    return sorted(lengths)


def keys_to_ask(transfer: Any, keys: Sequence[str]) -> Sequence[str]:
    """The keys to look up for a PoolTransfer: `keys` itself. For block_groups, the transfer's own
    keys, or else the last pages of each block."""
    if transfer.hit_policy != "block_groups":
        return keys
    if transfer.keys:
        return list(transfer.keys)
    block = max(1, transfer.block_pages)
    group = max(1, transfer.group_pages)
    return [
        key for end in range(block, len(keys) + 1, block) for key in keys[max(0, end - group) : end]
    ]


def verdict(transfer: Any, present: Sequence[bool], kv_pages: int, pages: int) -> PoolVerdict:
    """Applies a PoolTransfer's policy. `present` matches its `keys_to_ask`; `pages`: asked KV
    pages."""
    if transfer.hit_policy == "all_pages":
        return all_pages(present, kv_pages)
    if transfer.hit_policy == "trailing_pages":
        return trailing_pages(present, kv_pages, len(transfer.keys or ()) or 1)
    if transfer.hit_policy == "block_groups":
        return block_groups(present, transfer.group_pages, transfer.block_pages, pages)
    raise ValueError(f"unknown hit policy {transfer.hit_policy!r} of pool {transfer.name}")
