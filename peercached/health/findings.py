"""Collects the findings of one health check of a node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from peercached.health.kind import Kind


class Say(Protocol):
    """Reports a finding: a sentence with the values, and the remedy. `about` names the subject,
    such as a peer: a finding is hidden while a cause of it is found for the same subject."""

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

    def present(self) -> dict[tuple[str, str], str]:
        """The sentences by code and subject, without mere effects of other findings."""
        return {(one.kind.code, one.about): one.sentence for one in self._without_effects()}

    def document(self) -> list[dict[str, str]]:
        """The findings as admin.status.Health, in the order of reporting. Omits a finding if its
        cause is found too."""
        return [
            {
                "code": one.kind.code,
                "severity": one.kind.severity,
                "sentence": one.sentence,
                "remedy": one.remedy,
            }
            for one in self._without_effects()
        ]

    def _without_effects(self) -> list[_Finding]:
        found = {(one.kind.code, one.about) for one in self._all}
        return [
            one
            for one in self._all
            if not any((cause, one.about) in found for cause in one.kind.caused_by)
        ]
