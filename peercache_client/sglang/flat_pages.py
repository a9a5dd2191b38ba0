"""Pages of SGLang's generic interface, which passes flattened tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from peercache_client.sglang.page_forms import Flattened, PageForm, keys_of
from peercache_client.sglang.placement import Place, view_of


class FlatPages:
    """The form for one call: same keys as `Flattened`, with the caller's tensors."""

    indices_per_page = 1

    def __init__(self, suffixes: tuple[str, ...], pages: Sequence[Any]) -> None:
        self.suffixes = suffixes
        self.pages = pages

    @classmethod
    def of(cls, form: PageForm | None, pages: Sequence[Any] | None) -> FlatPages | None:
        """`form`: the KV pool's, which determines the keys. None if it is not `Flattened` (the pool
        is unknown, holds no bytes, or is stored in place under other keys), or without pages."""
        if not isinstance(form, Flattened) or pages is None:
            return None
        return cls(form.suffixes, pages)

    def source(self, hashes: Sequence[str], indices: Any) -> Place:
        return self._place(hashes, [page.contiguous() for page in self.pages])

    def target(self, hashes: Sequence[str], indices: Any) -> Place:
        if not all(page.is_contiguous() for page in self.pages):
            raise ValueError("a page cannot be put into a tensor that is not contiguous")
        return self._place(hashes, self.pages)

    def arrived(self, place: Place, indices: Any, ok: Sequence[bool]) -> None:
        pass

    def _place(self, hashes: Sequence[str], pages: Sequence[Any]) -> Place:
        if len(pages) != len(hashes):
            raise ValueError(f"{len(hashes)} keys and {len(pages)} tensors")
        views = [view_of(page) for page in pages]
        return Place(keys_of(self, hashes), [], [], [view.nbytes for view in views], views, pages)
