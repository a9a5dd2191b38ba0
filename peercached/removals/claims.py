"""The processes that owe other members (processes.py), as those members say.

A member knows of removals, and of processes that have missed them. It names these processes to
everybody who asks. We use no page of these processes, and tell them that they owe. We ask the
member again until it names them no more. If it goes before that, its claims are ours
(Processes.owed). Not thread safe.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from peercached.membership.view import MEMBERS_MAX
from peercached.removals.processes import Process

Name = tuple[str, int]  # node id, incarnation


class Claims:
    def __init__(self, own_id: str, known: Iterable[tuple[Name, Process]] = ()) -> None:
        self._own_id = own_id
        self._by: dict[Name, list[Process]] = {}  # the processes that owe this member
        for by, process in known:
            self._by.setdefault(by, []).append(process)

    def __iter__(self) -> Iterator[tuple[Name, Process]]:
        return ((by, process) for by, processes in self._by.items() for process in processes)

    def say(self, by: Name, away: Iterable[Process]) -> bool:
        """The member `by` names these processes, and no others any more. Returns whether that is
        news. More than a cluster can have are made up."""
        before = self._by.pop(by, [])
        now = [process for process in away if process.node_id != self._own_id][:MEMBERS_MAX]
        if now:
            self._by[by] = now
        return {process.name for process in before} != {process.name for process in now}

    def are_of(self, by: Name) -> bool:
        return by in self._by

    def owing(self) -> set[int]:
        """The incarnations of the processes that owe somebody."""
        return {process.incarnation for _, process in self}

    def creditors_of(self, incarnation: int) -> set[str]:
        """The node ids of the members that this process owes."""
        return {by[0] for by, process in self if process.incarnation == incarnation}

    def without(self, here: Collection[Name]) -> list[Process]:
        """Takes out the claims of processes that are not among the members `here`, and returns the
        processes that they named."""
        gone = self._by.keys() - set(here)
        return [process for by in gone for process in self._by.pop(by)]
