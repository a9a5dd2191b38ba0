"""One result of a check."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "skipped", "warning", "failure"]


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
    return 2 if "failure" in levels else 1 if "warning" in levels else 0


def trouble(needed: bool) -> Level:
    """Failure if the configuration requires RDMA; warning if it would only use it."""
    return "failure" if needed else "warning"
