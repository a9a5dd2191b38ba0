"""A problem of the configuration: key, value, source, remedy."""

from __future__ import annotations

from dataclasses import dataclass

from peercached.config.values import USERINFO


@dataclass(frozen=True)
class Problem:
    """One problem to fix."""

    key: str
    what: str
    remedy: str
    value: str = ""  # as given; empty if no single value is wrong
    source: str = ""

    def __str__(self) -> str:
        given = f" = {self.value}" if self.value else ""
        source = f" ({self.source})" if self.source else ""
        text = f"{self.key}{given}{source}: {self.what}; {self.remedy}"
        return USERINFO.sub("[taken out]", text)  # logs show it


class ConfigError(Exception):
    """All problems of the configuration, not only the first."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = problems
        super().__init__("\n".join(str(problem) for problem in problems))
