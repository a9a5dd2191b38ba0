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
    """`remedy` is empty if there is nothing to do. skipped: the check could not run."""

    check: str
    level: Level
    text: str
    remedy: str = ""


def exit_code(findings: Iterable[Finding]) -> int:
    """0: no problems, 1: warnings, 2: failures."""
    levels = {finding.level for finding in findings}
    if "failure" in levels:
        return EXIT_FAILURES
    return EXIT_WARNINGS if "warning" in levels else EXIT_OK


def trouble(needed: bool) -> Level:
    """Failure if the configuration requires RDMA; warning if it would only use it."""
    return "failure" if needed else "warning"
