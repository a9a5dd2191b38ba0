"""One result of a check."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "skipped", "warning", "failure"]

EXIT_OK = 0
EXIT_WARNINGS = 1
EXIT_FAILURES = 2


@dataclass(frozen=True, slots=True)
class Finding:
    """`remedy` is empty where nothing is to be done. skipped: it could not be looked at."""

    check: str
    level: Level
    text: str
    remedy: str = ""


def exit_code(findings: Iterable[Finding]) -> int:
    """0 all well, 1 warnings, 2 failures."""
    levels = {finding.level for finding in findings}
    if "failure" in levels:
        return EXIT_FAILURES
    return EXIT_WARNINGS if "warning" in levels else EXIT_OK


def trouble(needed: bool) -> Level:
    """What is a failure where RDMA was asked for is a warning where it would be taken."""
    return "failure" if needed else "warning"
