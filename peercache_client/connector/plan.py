"""Turns the RFC's mapping of pages to tokens into checked pages to move."""

from __future__ import annotations

import operator
import reprlib
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

PageToTokens = Sequence[tuple[int, slice]]

_WANTED: Final = "a list of (page number, slice(start, stop)) is wanted, without steps"


class Plan(NamedTuple):
    first: int  # position in the request of the first of `pages`
    pages: list[int]  # page numbers in the buffers, in token order
    stop: int  # index of the token after the mapping's last


def make_plan(
    mapping: PageToTokens, tokens: int, page_size: int, pages_max: int, boundary_tokens: int = 0
) -> Plan:
    """`mapping`: (page number in the buffers, slice of the request's tokens), in token order
    without gaps. A last page is left out if it is not full, or if the `boundary_tokens` after it
    are not known yet. Its hash would still change.

    Raises ValueError for an invalid mapping: a gap, a slice beyond the tokens, a repeated page, or
    a number that is not an integer.
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
    return Plan(first or 0, pages, end or 0)


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
