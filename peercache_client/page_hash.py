"""Page hashes as SGLang's HiCache computes them (sglang 0.5.23), with the standard library only.

A hash covers its page and all pages before it:

    hash[i] = sha256(digest of hash[i - 1] + the tokens of page i), in hex

Tokens are little-endian u32. If a token of the page needs more bits, the page is 0xff followed by
u64s: an odd number of bytes, so the two forms never collide. With EAGLE each token is replaced by a
pair: the token and the next one. If a request has an `extra_key` or a `cache_salt`, a seed made of
both precedes its first page.
"""

from __future__ import annotations

import hashlib
import operator
import reprlib
from array import array
from collections.abc import Iterable
from typing import Any

_U32_MAX = (1 << 32) - 1
_TOKEN_MAX = (1 << 63) - 1


def page_hashes(
    tokens: Iterable[int], page_size: int, prior: str | None = None, *, pairs: bool = False
) -> list[str]:
    """Hashes the full pages of these tokens; `prior` is the hash before the first page, or a seed.
    With `pairs` (EAGLE) a page has `page_size` pairs of neighbours, so it needs one more token.

    Raises ValueError like `words`. An array of type "q" is used without checks, as `words` makes
    it.
    """
    given = tokens if isinstance(tokens, array) and tokens.typecode == "q" else words(tokens)
    whole = max(0, len(given) - pairs) // page_size * page_size
    narrow = _all_narrow(given)
    content = _units(given, 0, whole, "I", pairs) if narrow else b""
    page_bytes = (8 if pairs else 4) * page_size
    digest = bytes.fromhex(prior) if prior else b""
    hashes = []
    for number, begin in enumerate(range(0, whole, page_size)):
        if narrow:
            page = content[number * page_bytes : (number + 1) * page_bytes]
        elif _all_narrow(given[begin : begin + page_size + pairs]):
            page = _units(given, begin, page_size, "I", pairs)
        else:
            page = b"\xff" + _units(given, begin, page_size, "q", pairs)
        digest = hashlib.sha256(digest + page).digest()
        hashes.append(digest.hex())
    return hashes


def _units(tokens: array[int], begin: int, count: int, typecode: str, pairs: bool) -> bytes:
    """`count` tokens as bytes; with `pairs`, each token is followed by its successor."""
    if not pairs:
        return array(typecode, tokens[begin : begin + count]).tobytes()
    made = array(typecode, bytes(2 * count * array(typecode).itemsize))
    made[0::2] = array(typecode, tokens[begin : begin + count])
    made[1::2] = array(typecode, tokens[begin + 1 : begin + count + 1])
    return made.tobytes()


def words(tokens: Iterable[int]) -> array[int]:
    """Tokens as an array, which is fast to compare and slice.

    ValueError names the first invalid token, and its position.
    """
    # array() would read a bytes object as 8-byte words; as a list its items are small numbers.
    given = tokens if isinstance(tokens, (array, list, tuple)) else list(tokens)
    try:
        made = array("q", given)
    except (TypeError, OverflowError):
        raise ValueError(_first_wrong(given)) from None
    if made and min(made) < 0:
        raise ValueError(_first_wrong(given))
    return made


def _first_wrong(tokens: Iterable[Any]) -> str:
    for place, token in enumerate(tokens):
        try:
            wrong = not 0 <= operator.index(token) <= _TOKEN_MAX
        except TypeError:
            wrong = True
        if wrong:
            return f"token {place} is {reprlib.repr(token)}: a whole number from 0 to 2**63 - 1"
    return "the tokens changed while they were read"


def namespace_seed(extra_key: str | None, cache_salt: str | None) -> str | None:
    """The seed before the first page of a request; None if it has no extra_key and no
    cache_salt."""
    if extra_key is None and cache_salt is None:
        return None
    content = [b"sglang-cache-namespace-v1"]
    for part in (extra_key, cache_salt):
        if part is None:
            content.append(b"\0")
        else:
            encoded = part.encode()
            content.append(b"\1" + len(encoded).to_bytes(8, "little") + encoded)
    return hashlib.sha256(b"".join(content)).hexdigest()


def _all_narrow(tokens: array[int]) -> bool:
    return not tokens or max(tokens) <= _U32_MAX
