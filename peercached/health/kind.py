"""A kind of finding. Status, dashboard, metrics, alerts and the manual name it by its code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning", "info"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")


@dataclass(frozen=True, slots=True)
class Kind:
    code: str  # for programs: never changes its meaning
    severity: Severity
    meaning: str
    # Codes of possible causes. A cause with the same subject hides this finding.
    caused_by: tuple[str, ...] = ()
