"""From which pages exist to how long a prefix can be restored.

The policies are those of SGLang's `PoolHitPolicy`:

- all_pages: every page of the prefix must exist for this pool
- trailing_pages: only a window that ends where the prefix ends
- block_groups: whole groups of keys; the pool tells how far they reach and lowers nothing
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple


class PoolVerdict(NamedTuple):
    pages: int  # of the prefix, as far as this pool reaches
    restorable: frozenset[int] | None  # prefix lengths it allows; None: it forbids none


def leading(present: Sequence[bool]) -> int:
    """How many are present from the first one on."""
    try:
        return list(present).index(False)
    except ValueError:
        return len(present)


def all_pages(present: Sequence[bool], kv_pages: int) -> PoolVerdict:
    reach = leading(present[:kv_pages])
    return PoolVerdict(reach, frozenset(range(1, reach + 1)))


def trailing_pages(present: Sequence[bool], kv_pages: int, window_pages: int) -> PoolVerdict:
    """A length is allowed where the window before it is whole; 5 may be, when 4 and 3 are not."""
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
    """`present`: of the groups' keys, group after group; each whole group covers a block."""
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
    """Of a PoolTransfer: the page hashes of `keys`; for groups its own keys, group after group,
    or else the last pages of each block."""
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
    """Of a PoolTransfer, from which of its `keys_to_ask` are present. `pages`: asked of the KV."""
    if transfer.hit_policy == "all_pages":
        return all_pages(present, kv_pages)
    if transfer.hit_policy == "trailing_pages":
        return trailing_pages(present, kv_pages, len(transfer.keys or ()) or 1)
    if transfer.hit_policy == "block_groups":
        return block_groups(present, transfer.group_pages, transfer.block_pages, pages)
    raise ValueError(f"unknown hit policy {transfer.hit_policy!r} of pool {transfer.name}")
