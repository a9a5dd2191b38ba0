"""A lookup's keys, by the chunks of its prompt."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple


class Chunks(NamedTuple):
    names: list[Hashable]  # of the chunks, in the order of the prompt
    places: list[int]  # of the first chunk's keys, then of the next one's
    keys_each: int


def by_chunk(keys: Sequence[Any], places: Sequence[int]) -> Chunks | None:
    """`places`: of one model's keys, of all its ranks. None: of a hybrid model, or not the same
    chunks of each rank."""
    rows: dict[int, list[int]] = {}
    for place in places:
        if keys[place].object_group_id != keys[places[0]].object_group_id:
            return None
        rows.setdefault(keys[place].kv_rank, []).append(place)
    of_rows = [[name_of(keys[place]) for place in row] for row in rows.values()]
    if any(names != of_rows[0] for names in of_rows):
        return None
    by_chunks = zip(*rows.values(), strict=True)
    return Chunks(of_rows[0], [place for chunk in by_chunks for place in chunk], len(rows))


def name_of(key: Any) -> Hashable:
    """One for all ranks."""
    return key.chunk_hash, key.model_name, key.cache_salt
