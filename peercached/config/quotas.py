"""`namespace_quotas`: limits for namespaces in the pool and on disk."""

from __future__ import annotations

import math
from typing import NamedTuple

QUOTAS_MAX = 64


class Quota(NamedTuple):
    """Shares of the whole, above 0 and up to 1. `disk_share` None: no disk quota."""

    pattern: str
    pool_share: float
    disk_share: float | None

    def in_bytes(self, pool_size: int, disk_size: int) -> tuple[str, int, int | None]:
        """The form that the engine takes."""
        disk = None if self.disk_share is None else int(self.disk_share * disk_size)
        return self.pattern, int(self.pool_share * pool_size), disk


def split_quota(text: str) -> Quota:
    """Parses `pattern=share` or `pattern=share:disk_share`. ValueError."""
    pattern, equals, shares = text.rpartition("=")
    pool, colon, disk = shares.partition(":")
    quota = Quota(pattern, _share(pool), _share(disk) if colon else None)
    wrong = math.isnan(quota.pool_share) or math.isnan(quota.disk_share or 0)
    if not equals or not pattern or len(pattern.encode()) > 1024 or wrong:
        raise ValueError(
            f"has {text!r}; give pattern=share, or pattern=share:disk_share, with shares above 0 "
            "up to 1, such as tenant-a/*=0.25 or tenant-a/*=0.25:0.5"
        )
    return quota


def check_quotas(rules: list[str]) -> list[str]:
    """Checks that split_quota accepts each rule, and that there are not too many. ValueError."""
    if len(rules) > QUOTAS_MAX:
        raise ValueError(f"has {len(rules)} quotas; {QUOTAS_MAX} at most, a pattern fits many")
    for rule in rules:
        split_quota(rule)
    return rules


def _share(text: str) -> float:
    """The share as a number; NaN if it is invalid."""
    try:
        number = float(text)
    except ValueError:
        return math.nan
    return number if 0 < number <= 1 else math.nan
