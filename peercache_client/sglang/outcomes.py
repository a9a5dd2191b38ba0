"""Computes from the statuses of pieces which pages were moved, and logs why others were not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from peercache_client import Status
from peercache_client.rate_limited_log import RateLimitedLog


def whole_pages(statuses: Sequence[Status], pages: int, pieces: int) -> list[bool]:
    """For each page, whether all its pieces are ok. `statuses`: all pieces of the first page, then
    of the second, and so on. If some are missing, their pages are not whole."""
    if len(statuses) == pages * pieces and statuses.count(Status.ok) == len(statuses):
        return [True] * pages
    return [
        statuses[i : i + pieces].count(Status.ok) == pieces
        for i in range(0, pages * pieces, pieces)
    ]


def explain(
    log_rarely: RateLimitedLog,
    done: str,
    pool: str,
    results: Sequence[bool],
    statuses: Sequence[Status],
) -> None:
    """Says how many pages of the pool were not `done`, and why. Silent if all were."""
    if all(results):
        return
    why = Counter(status.name for status in statuses if not status)
    reasons = ", ".join(f"{count} {name}" for name, count in why.most_common())
    log_rarely.say(
        f"{done} {pool} {min(why, default='')}",
        f"pool {pool}: {results.count(False)} of {len(results)} pages were not {done}: {reasons}",
    )
