"""From the RFC's mapping of pages to tokens to pages that can be moved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

PageToTokens = Sequence[tuple[int, slice]]


class Plan(NamedTuple):
    first: int  # which page of the request is the first of `pages`
    pages: list[int]  # numbers of pages in the buffers, in the order of the tokens


def make_plan(
    mapping: PageToTokens, tokens: int, page_size: int, pages_max: int, boundary_tokens: int = 0
) -> Plan:
    """`mapping`: (number of a page in the buffers, the slice of the request's tokens in it), one
    behind the other. A last page that is not full, or whose `boundary_tokens` behind it are not
    known, is left out: its hash will be another one.

    ValueError for what cannot be meant: a hole, a slice beyond the tokens, a page twice.
    """
    pages = []
    first = end = None
    for page, part in mapping:
        start, stop, step = part.start or 0, part.stop, part.step or 1
        if step != 1 or stop is None or not 0 <= start < stop <= tokens:
            raise ValueError(f"page {page} has {part} of {tokens} tokens: start, stop, no step")
        if first is None:
            first = start // page_size
        if start % page_size or (end is not None and start != end):
            raise ValueError(
                f"page {page} begins with token {start}: pages have {page_size} tokens, and "
                f"each begins where the one before it ends"
            )
        if stop - start > page_size:
            raise ValueError(f"page {page} has {stop - start} tokens: at most {page_size}")
        if not 0 <= page < pages_max:
            raise ValueError(f"there is no page {page}: the buffers have {pages_max}")
        end = stop
        if stop - start == page_size and stop + boundary_tokens <= tokens:
            pages.append(int(page))
    if len(set(pages)) != len(pages):
        raise ValueError("a page is named twice: it cannot hold two pages of a request")
    return Plan(first or 0, pages)
