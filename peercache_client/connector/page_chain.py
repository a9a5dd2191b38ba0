"""The page hashes of one request, which grow with it."""

from __future__ import annotations

import threading
from array import array

from peercache_client.page_hash import page_hashes


class PageChain:
    """A request's tokens come again with every chunk of it; only new pages are hashed. Should
    they be others than before, everything from the first other page on is. Thread safe."""

    def __init__(self, page_size: int) -> None:
        self._page_size = page_size
        self._lock = threading.Lock()
        self._seed: str | None = None
        self._tokens: array[int] = array("q")  # of the pages that have hashes
        self._hashes: list[str] = []

    def hashes(self, tokens: array[int], seed: str | None) -> list[str]:
        """Of the whole pages of all these tokens, an array of "q". ValueError: no such token."""
        size = self._page_size
        whole = len(tokens) // size * size
        with self._lock:
            if seed != self._seed:
                self._seed = seed
                self._forget(0)
            common = min(whole, len(self._tokens))
            if tokens[:common] != self._tokens[:common]:
                page = next(
                    begin
                    for begin in range(0, common, size)
                    if tokens[begin : begin + size] != self._tokens[begin : begin + size]
                )
                self._forget(page // size)
            known = len(self._tokens)
            if known < whole:
                prior = self._hashes[-1] if self._hashes else seed
                self._hashes += page_hashes(tokens[known:whole], size, prior)
                self._tokens += tokens[known:whole]
            return self._hashes[: whole // size]

    def _forget(self, first_page: int) -> None:
        del self._tokens[first_page * self._page_size :]
        del self._hashes[first_page:]
