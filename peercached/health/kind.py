"""A kind of finding. Status, dashboard, metrics, alerts and the manual name it by its code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning", "info"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")  # worst first


@dataclass(frozen=True, slots=True)
class Kind:
    code: str  # for programs: never changes its meaning
    severity: Severity
    meaning: str
    # Codes of possible causes. A cause with the same subject hides this finding.
    caused_by: tuple[str, ...] = ()


class Section:
    """The kinds of one subject, in the order of their definition."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.kinds: list[Kind] = []

    def error(self, code: str, meaning: str, *caused_by: str) -> Kind:
        return self._add(Kind(code, "error", meaning, caused_by))

    def warning(self, code: str, meaning: str, *caused_by: str) -> Kind:
        return self._add(Kind(code, "warning", meaning, caused_by))

    def info(self, code: str, meaning: str, *caused_by: str) -> Kind:
        return self._add(Kind(code, "info", meaning, caused_by))

    def _add(self, kind: Kind) -> Kind:
        self.kinds.append(kind)
        return kind
