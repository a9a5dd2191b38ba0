"""The page hashes of one request, extended as the request grows."""

from __future__ import annotations

import threading
from array import array

from peercache_client.page_hash import page_hashes


class PageChain:
    """Each call brings all tokens of the request again; only new pages are hashed. If a token
    differs from before, its page and all later pages are hashed anew. Thread safe."""

    def __init__(self, page_size: int, *, pairs: bool = False) -> None:
        self._page_size = page_size
        self._pairs = pairs
        self._lock = threading.Lock()
        self._seed: str | None = None
        self._tokens: array[int] = array("q")  # the tokens that the hashes cover
        self._hashes: list[str] = []

    def hashes(self, tokens: array[int], seed: str | None) -> list[str]:
        """Hashes of all full pages of these tokens, an array of type "q". ValueError: invalid
        token."""
        size = self._page_size
        pages = max(0, len(tokens) - self._pairs) // size
        with self._lock:
            if seed != self._seed:
                self._seed = seed
                self._forget(0)
            common = min(pages, len(self._hashes))
            end = self._covered(common)
            if tokens[:end] != self._tokens[:end]:
                self._forget(next(page for page in range(common) if self._differs(page, tokens)))
            known = len(self._hashes)
            if known < pages:
                prior = self._hashes[-1] if self._hashes else seed
                end = self._covered(pages)
                new = tokens[known * size : end]
                self._hashes += page_hashes(new, size, prior, pairs=self._pairs)
                self._tokens += tokens[len(self._tokens) : end]
            return self._hashes[:pages]

    def _covered(self, pages: int) -> int:
        """How many tokens these pages' hashes cover. With pairs, one after the last page counts
        too."""
        return pages * self._page_size + self._pairs if pages else 0

    def _differs(self, page: int, tokens: array[int]) -> bool:
        begin, end = page * self._page_size, self._covered(page + 1)
        return tokens[begin:end] != self._tokens[begin:end]

    def _forget(self, first_page: int) -> None:
        del self._tokens[self._covered(first_page) :]
        del self._hashes[first_page:]
