"""Records when each key was set, removed and read, and checks that no read returned an old page.

Every set has a version of its own, which its pages carry. A read returned an old page if its set
was answered before a removal of the key began, and that removal was answered before the read began.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count


@dataclass
class Span:
    """The time of a call. All spans use one clock. The call may take effect at any time until it
    ends. A call without an answer never ends."""

    began: float
    ended: float = float("inf")
    members: frozenset[int] = frozenset()  # incarnations in the remover's view at the end
    where: str = ""


@dataclass
class History:
    """Thread safe."""

    sets: dict[int, Span] = field(default_factory=dict)  # by version
    removals: dict[Hashable, list[Span]] = field(default_factory=lambda: defaultdict(list))
    operations: int = 0  # of single keys
    hits: int = 0
    pinned: int = 0  # pages, as all of these
    moved: int = 0
    sure: int = 0  # removals that were answered ok
    sets_of: dict[Hashable, list[Span]] = field(default_factory=lambda: defaultdict(list))  # by key
    clears: list[Span] = field(default_factory=list)  # each until all nodes know of it
    half_cleared: list[Span] = field(default_factory=list)  # answered, but a node was not reached
    # Nodes that started apart from the others, until they met. A removal elsewhere need not cover
    # pages that were set there meanwhile.
    apart: list[Span] = field(default_factory=list)
    # Nodes that live although the others go on without them, until they have met again. No rule can
    # keep such a node from serving its own workers pages that were removed elsewhere.
    unheard: list[Span] = field(default_factory=list)
    _unsure: dict[tuple[Hashable, str], list[Span]] = field(
        default_factory=lambda: defaultdict(list)  # by key and the node that was asked
    )
    _versions: count[int] = field(default_factory=lambda: count(100))

    @contextmanager
    def starting_apart(self, node_id: str) -> Iterator[None]:
        span = Span(time.monotonic(), where=node_id)
        self.apart.append(span)
        yield
        span.ended = time.monotonic()

    @contextmanager
    def going_on_unheard(self, node_id: str) -> Iterator[None]:
        span = Span(time.monotonic(), where=node_id)
        self.unheard.append(span)
        yield
        span.ended = time.monotonic()

    def _is_unheard(self, node_id: str, began: float) -> bool:
        return any(
            span.where == node_id and span.began <= began < span.ended for span in self.unheard
        )

    def _knew_no_clear(self, where: str, removal: Span) -> bool:
        """A removal that begins at a node without knowledge of a clear ends with the clear, and
        takes no page that was set after it (docs/consistency.md, Limits)."""
        return any(
            span.where == where
            and span.began <= removal.began < span.ended
            and any(span.began < one.ended and one.began < removal.began for one in self.clears)
            for span in (*self.unheard, *self.apart)
        )

    def _set_apart(self, was_set: Span, removal: Span) -> bool:
        return any(
            span.where == was_set.where
            and span.began < was_set.ended
            and removal.began < span.ended
            for span in self.apart
        )

    def begin_set(self, now: float, keys: Iterable[Hashable] = (), where: str = "") -> int:
        """Returns a new version. `found` needs `keys`."""
        version = next(self._versions)
        self.sets[version] = span = Span(now, where=where)
        for key in keys:
            self.sets_of[key].append(span)
        return version

    def removed(self, key: Hashable, removal: Span) -> None:
        self.sure += 1
        self.removals[key].append(removal)

    def removing(self, key: Hashable, removal: Span, where: str) -> None:
        """That node has not confirmed the removal yet."""
        self._unsure[key, where].append(removal)

    def forget_unsure(self) -> None:
        """No node remembers removals and clears that were not answered."""
        self._unsure.clear()
        self.half_cleared.clear()

    def stored(
        self, key: Hashable, version: int, where: str, members: frozenset[int] = frozenset()
    ) -> None:
        """That node accepted this set. It accepts none until its removals of the key are over, or
        the namespace has been cleared."""
        was_set = self.sets[version]
        unsure = self._unsure.pop((key, where), [])
        for removal in unsure:
            if any(
                clear.began < was_set.ended and removal.began < clear.ended for clear in self.clears
            ) or self._knew_no_clear(where, removal):
                continue
            if removal.ended < was_set.began:
                told = f"{where}, which took a set again"
                self.removed(key, Span(removal.began, was_set.ended, members, told))
            else:
                self.removing(key, removal, where)

    def read(self, key: Hashable, version: int, began: float, where: str, cut_off: int = 0) -> None:
        """AssertionError if the page is old. `cut_off`: incarnation of a holder that has started
        and not yet met a node that owes nobody. A removal then counts only if the remover's view
        had that holder."""
        self.hits += 1
        if self._is_unheard(where, began):
            return
        was_set = self.sets[version].ended
        for removal in self.removals[key]:
            if cut_off and cut_off not in removal.members:
                continue
            if self._set_apart(self.sets[version], removal):
                continue
            assert not (was_set < removal.began and removal.ended < began), (
                f"{where} read {key!r} at {began:.3f} as it was set until {was_set:.3f}, and it "
                f"was removed from {removal.began:.3f} to {removal.ended:.3f} at {removal.where}"
            )

    def found(self, key: Hashable, asked: Span, where: str) -> None:
        """An exists has answered that the key is there. AssertionError if every set of the key had
        been removed before the question."""
        if self._is_unheard(where, asked.began):
            return
        before = [
            removal
            for removal in self.removals[key]
            if removal.ended < asked.began
            and not any(self._set_apart(one, removal) for one in self.sets_of[key])
        ]
        if not before:
            return
        last = max(before, key=lambda removal: removal.began)
        assert any(
            one.began < asked.ended and not one.ended < last.began
            for one in reversed(self.sets_of[key])
        ), (
            f"{where} was asked at {asked.began:.3f} and said at {asked.ended:.3f} that {key!r} is "
            f"there; it was removed from {last.began:.3f} to {last.ended:.3f} at {last.where} and "
            "not set since"
        )
