"""A shape, and its result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple


class Figure(NamedTuple):
    name: str
    published: str
    """Empty: the source has no such figure."""
    ours: str


@dataclass(frozen=True)
class Result:
    figures: list[Figure]
    gain: str
    """One sentence: what a user would gain."""


@dataclass(frozen=True)
class Shape:
    title: str
    source: str
    scaled: str
    """The differences: smaller sizes, and modelled parts."""
    measure: Callable[[bool], Result]
    """Takes whether it should be quick: a few seconds, for tests."""
    has_links: bool = False
    """It needs network namespaces, and so root."""
