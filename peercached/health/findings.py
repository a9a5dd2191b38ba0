"""The findings of one look at a node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from peercached.health.kind import Kind


class Say(Protocol):
    """Reports a finding: a sentence with the values, and what to do. `about` is the subject, such
    as a peer, for findings that may have a cause which says it all."""

    def __call__(self, kind: Kind, sentence: str, remedy: str = "", *, about: str = "") -> None: ...


@dataclass(frozen=True, slots=True)
class _Finding:
    kind: Kind
    sentence: str
    remedy: str
    about: str


class Findings:
    def __init__(self) -> None:
        self._all: list[_Finding] = []

    def say(self, kind: Kind, sentence: str, remedy: str = "", *, about: str = "") -> None:
        """See Say."""
        self._all.append(_Finding(kind, sentence, remedy, about))

    def document(self) -> list[dict[str, str]]:
        """The fields of admin.status.Health, in the order in which they were said, without those
        that have their cause beside them."""
        found = {(one.kind.code, one.about) for one in self._all}
        return [
            {
                "code": one.kind.code,
                "severity": one.kind.severity,
                "sentence": one.sentence,
                "remedy": one.remedy,
            }
            for one in self._all
            if not any((cause, one.about) in found for cause in one.kind.caused_by)
        ]
