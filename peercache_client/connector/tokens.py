"""Checks the tokens and the salt of a call.

The engine's tokens are copied here, on the engine's thread, because its lists change later.
"""

from __future__ import annotations

import reprlib
from array import array
from collections.abc import Sequence

from peercache_client.page_hash import namespace_seed, words

Salt = tuple[str | None, str | None]  # extra_key and cache_salt of a request


def count_tokens(tokens_list: Sequence[int]) -> int:
    """The number of tokens. ValueError if it is not a sequence."""
    try:
        tokens_list[:0]
        return len(tokens_list)
    except (TypeError, KeyError):
        raise ValueError(
            f"tokens_list is {reprlib.repr(tokens_list)}: a list of tokens is wanted"
        ) from None


def first_tokens(tokens_list: Sequence[int], count: int) -> array[int]:
    """The first `count` tokens. ValueError names the first invalid token and its position."""
    return words(tokens_list[:count])


def seed_of(salt: Salt) -> str | None:
    """The seed before the first page's hash. ValueError if a salt is not text."""
    extra_key, cache_salt = salt
    try:
        return namespace_seed(extra_key, cache_salt)
    except (AttributeError, UnicodeEncodeError):
        raise ValueError(
            f"extra_key is {extra_key!r} and cache_salt is {cache_salt!r}: "
            "text in valid Unicode, or None, is wanted"
        ) from None
