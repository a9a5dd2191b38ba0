"""From the RFC's mapping of pages to tokens to pages that can be moved."""

from __future__ import annotations

import operator
import reprlib
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

PageToTokens = Sequence[tuple[int, slice]]

_WANTED: Final = "a list of (page number, slice(start, stop)) is wanted, without steps"


class Plan(NamedTuple):
    first: int  # which page of the request is the first of `pages`
    pages: list[int]  # numbers of pages in the buffers, in the order of the tokens


def make_plan(
    mapping: PageToTokens, tokens: int, page_size: int, pages_max: int, boundary_tokens: int = 0
) -> Plan:
    """`mapping`: (number of a page in the buffers, the slice of the request's tokens in it), one
    behind the other. A last page that is not full, or whose `boundary_tokens` behind it are not
    known, is left out: its hash will be another one.

    ValueError for what cannot be meant: a hole, a slice beyond the tokens, a page twice, anything
    that is no whole number.
    """
    pages = []
    first = end = None
    for page, start, stop in _entries(mapping):
        if not 0 <= start < stop <= tokens:
            raise ValueError(f"page {page} has tokens {start} to {stop} of {tokens}")
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
            pages.append(page)
    if len(set(pages)) != len(pages):
        raise ValueError("a page is named twice: it cannot hold two pages of a request")
    return Plan(first or 0, pages)


def _entries(mapping: PageToTokens) -> Iterator[tuple[int, int, int]]:
    """Page, start and stop of each entry."""
    try:
        entries = list(mapping)
    except TypeError:
        raise ValueError(f"page_to_tokens_mapping is {reprlib.repr(mapping)}: {_WANTED}") from None
    for place, entry in enumerate(entries):
        try:
            page, part = entry
            if part.step not in (None, 1):
                raise ValueError("a step")
            start = 0 if part.start is None else part.start
            numbers = [operator.index(number) for number in (page, start, part.stop)]
        except (TypeError, ValueError, AttributeError):
            raise ValueError(
                f"entry {place} of page_to_tokens_mapping is {reprlib.repr(entry)}: {_WANTED}"
            ) from None
        yield numbers[0], numbers[1], numbers[2]
