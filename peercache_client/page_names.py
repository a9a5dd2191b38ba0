"""The names of pages in events: the hashes of their blocks, as in the engine's own events.

The daemon tells routers which node has which pages, if `kv_events_port` is set (docs/routers.md).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import Enum
from typing import Final

HASH_BYTES_MAX: Final = 32
BLOCK_TOKENS_MAX: Final = (1 << 16) - 1
_SIGNED, _UNSIGNED, _UNTOLD = 0x88, 0x89, 0xFF
_TOKENS = struct.Struct("<I")
_INTEGERS = {_SIGNED: struct.Struct("<q"), _UNSIGNED: struct.Struct("<Q")}


class Untold(Enum):
    """The hash of a page that no event names, because another page stands for its block."""

    untold = 0


UNTOLD: Final = Untold.untold
# None: the page has no hash, and events have its digest instead.
PageHash = bytes | int | None | Untold


class Names:
    """The hashes of a batch, and the tokens of a block; 0: unknown."""

    __slots__ = ("_block_tokens", "_names")

    def __init__(self, names: list[tuple[int, bytes]], block_tokens: int) -> None:
        self._names = names
        self._block_tokens = block_tokens

    @staticmethod
    def of(hashes: Sequence[PageHash] | None, keys: int, block_tokens: int) -> Names | None:
        """None without hashes. TypeError, ValueError."""
        if not isinstance(block_tokens, int) or not 0 <= block_tokens <= BLOCK_TOKENS_MAX:
            raise ValueError(f"block_tokens is {block_tokens!r}: 0 to {BLOCK_TOKENS_MAX}")
        if hashes is None:
            return None
        if isinstance(hashes, (bytes, str)) or len(hashes) != keys:
            raise ValueError(f"{keys} keys and {len(hashes)} hashes: one for each key")
        return Names([_packed(each, i) for i, each in enumerate(hashes)], block_tokens)

    def part(self, chosen: Sequence[int]) -> Names:
        """Those of the pages with these numbers."""
        return Names([self._names[i] for i in chosen], self._block_tokens)

    def packed(self, begin: int, end: int) -> bytes:
        """The end of a frame's body, for these pages of the batch."""
        names = self._names[begin:end]
        kinds = bytes([kind for kind, _ in names])
        return b"".join([*(name for _, name in names), kinds, _TOKENS.pack(self._block_tokens)])


def _packed(page_hash: PageHash, place: int) -> tuple[int, bytes]:
    if isinstance(page_hash, bytes):
        if 1 <= len(page_hash) <= HASH_BYTES_MAX:
            return len(page_hash), page_hash
        raise ValueError(f"hashes[{place}] has {len(page_hash)} bytes: 1 to {HASH_BYTES_MAX}")
    if page_hash is None:
        return 0, b""
    if page_hash is UNTOLD:
        return _UNTOLD, b""
    if isinstance(page_hash, int) and not isinstance(page_hash, bool):
        kind = _SIGNED if page_hash < 1 << 63 else _UNSIGNED
        try:
            return kind, _INTEGERS[kind].pack(page_hash)
        except struct.error:
            raise ValueError(f"hashes[{place}] is {page_hash}: it must fit 64 bits") from None
    raise TypeError(
        f"hashes[{place}] is {page_hash!r:.80}: bytes, an integer of 64 bits, None or UNTOLD"
    )
