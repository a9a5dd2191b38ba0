"""The page hashes of one request, which grow with it."""

from __future__ import annotations

import threading
from array import array

from peercache_client.page_hash import page_hashes


class PageChain:
    """A request's tokens come again with every chunk of it; only new pages are hashed. Should
    they be others than before, everything from the first other page on is. Thread safe."""

    def __init__(self, page_size: int, *, pairs: bool = False) -> None:
        self._page_size = page_size
        self._pairs = pairs
        self._lock = threading.Lock()
        self._seed: str | None = None
        self._tokens: array[int] = array("q")  # that the hashes cover
        self._hashes: list[str] = []

    def hashes(self, tokens: array[int], seed: str | None) -> list[str]:
        """Of the whole pages of all these tokens, an array of "q". ValueError: no such token."""
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
        """How many tokens: with pairs, the one behind the last page, too."""
        return pages * self._page_size + self._pairs if pages else 0

    def _differs(self, page: int, tokens: array[int]) -> bool:
        begin, end = page * self._page_size, self._covered(page + 1)
        return tokens[begin:end] != self._tokens[begin:end]

    def _forget(self, first_page: int) -> None:
        del self._tokens[self._covered(first_page) :]
        del self._hashes[first_page:]
