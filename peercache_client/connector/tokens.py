"""The parts of a call that can be wrong in themselves: its tokens and its salt.

What the engine gives is copied here, on its own thread: its lists grow and change later.
"""

from __future__ import annotations

import reprlib
from array import array
from collections.abc import Sequence

from peercache_client.page_hash import namespace_seed, words

Salt = tuple[str | None, str | None]  # extra_key and cache_salt of a request


def count_tokens(tokens_list: Sequence[int]) -> int:
    """ValueError for what is no sequence."""
    try:
        tokens_list[:0]
        return len(tokens_list)
    except (TypeError, KeyError):
        raise ValueError(
            f"tokens_list is {reprlib.repr(tokens_list)}: a list of tokens is wanted"
        ) from None


def first_tokens(tokens_list: Sequence[int], count: int) -> array[int]:
    """ValueError with the first of them that is no token, and its place."""
    return words(tokens_list[:count])


def seed_of(salt: Salt) -> str | None:
    """What the first page's hash follows. ValueError for a salt that is no text."""
    extra_key, cache_salt = salt
    try:
        return namespace_seed(extra_key, cache_salt)
    except (AttributeError, UnicodeEncodeError):
        raise ValueError(
            f"extra_key is {extra_key!r} and cache_salt is {cache_salt!r}: "
            "text in valid Unicode, or None, is wanted"
        ) from None
