"""Ends of removals that come before the removal itself (catch_up.py). Not thread safe.

A member that tells too many pushes out only its own. The removal of a forgotten end stays open
here, until this node asks the process that began it, or takes it over.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping

from peercached.removals.ledger import RemovalId

# Answers kept for each member that tells ends: 7 MB.
ANSWERS_MAX = 1 << 16


class EarlyEnds:
    def __init__(self) -> None:
        self._told_by: dict[int, _Told] = {}  # by the member's incarnation

    def note(self, id: RemovalId, answered: Mapping[int, int], by: int) -> None:
        """`answered`: the positions of those that have answered. `by`: the member that says so."""
        self._told_by.setdefault(by, _Told()).note(id, answered)

    def take(self, id: RemovalId) -> Mapping[int, int] | None:
        found = [told.take(id) for told in self._told_by.values()]
        return next((answered for answered in found if answered is not None), None)

    def keep_only(self, members: Collection[int]) -> None:
        """Forgets what all others have told."""
        for gone in self._told_by.keys() - members:
            del self._told_by[gone]


class _Told:
    """The ends that one member has told."""

    def __init__(self) -> None:
        self._ends: OrderedDict[RemovalId, Mapping[int, int]] = OrderedDict()
        self._answers = 0

    def note(self, id: RemovalId, answered: Mapping[int, int]) -> None:
        self.take(id)
        self._ends[id] = answered
        self._answers += 1 + len(answered)
        while self._answers > ANSWERS_MAX:
            self.take(next(iter(self._ends)))

    def take(self, id: RemovalId) -> Mapping[int, int] | None:
        answered = self._ends.pop(id, None)
        if answered is not None:
            self._answers -= 1 + len(answered)
        return answered
