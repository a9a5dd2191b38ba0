"""What is wrong with a configuration: the key, the value, where it came from, the remedy."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """One thing to put right."""

    key: str
    what: str
    remedy: str
    value: str = ""  # as given; empty: no single value is at fault
    source: str = ""

    def __str__(self) -> str:
        given = f" = {self.value}" if self.value else ""
        source = f" ({self.source})" if self.source else ""
        return f"{self.key}{given}{source}: {self.what}; {self.remedy}"


class ConfigError(Exception):
    """Everything that is wrong with the configuration, not just the first thing."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = problems
        super().__init__("\n".join(str(problem) for problem in problems))
