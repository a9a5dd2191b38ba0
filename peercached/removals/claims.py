"""The processes that owe other members (lives.py), as those members say.

A member knows of removals, and of processes that have missed them. It names these processes to
everybody who asks. We use no page of these processes, and tell them that they owe. We ask the
member again until it names them no more. If it goes before that, its claims are ours (Lives.owed).
Not thread safe.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from peercached.removals.lives import Life

Name = tuple[str, int]  # node id, incarnation


class Claims:
    def __init__(self, own_id: str, known: Iterable[tuple[Name, Life]] = ()) -> None:
        self._own_id = own_id
        self._by: dict[Name, list[Life]] = {}  # the lives that owe this member
        for by, life in known:
            self._by.setdefault(by, []).append(life)

    def __iter__(self) -> Iterator[tuple[Name, Life]]:
        return ((by, life) for by, lives in self._by.items() for life in lives)

    def say(self, by: Name, away: Iterable[Life]) -> bool:
        """The member `by` names these lives, and no others any more. Returns whether that is
        news."""
        before = self._by.pop(by, [])
        now = [life for life in away if life.node_id != self._own_id]
        if now:
            self._by[by] = now
        return {life.name for life in before} != {life.name for life in now}

    def are_of(self, by: Name) -> bool:
        return by in self._by

    def owing(self) -> set[int]:
        """The incarnations of the lives that owe somebody."""
        return {life.incarnation for _, life in self}

    def without(self, here: Collection[Name]) -> list[Life]:
        """Takes out the claims of processes that are not among the members `here`, and returns the
        lives that they named."""
        gone = self._by.keys() - set(here)
        return [life for by in gone for life in self._by.pop(by)]
