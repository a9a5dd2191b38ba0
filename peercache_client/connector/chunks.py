"""Moves the pages of one call in chunks, up to the first failure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from peercache_client.connector.plan import Plan
from peercache_client.connector.requests import Call
from peercache_client.packed_keys import PackedKeys, pack_with_suffixes
from peercache_client.status import Status

# Arguments: hashes of the pages, keys of all their pieces, their buffer numbers, the key before the
# first.
Move = Callable[[Sequence[str], PackedKeys, Sequence[int], "str | None"], list[Status]]


def move_in_chunks(
    move: Move,
    plan: Plan,
    hashes: Sequence[str],
    suffixes: tuple[str, ...],
    call: Call,
    chunk_pages: int,
) -> tuple[int, Status]:
    """Returns the number of leading pages that succeeded, and the status of the first failure (`ok`
    if none failed or the call was stopped). Pages after a missing one are useless, so it stops
    there. `hashes` start at the request's first page."""
    good = 0
    while good < len(plan.pages) and not call.stopped.is_set():
        pages = plan.pages[good : good + chunk_pages]
        first = plan.first + good
        parent = hashes[first - 1] + suffixes[-1] if first else None
        part = hashes[first : first + len(pages)]
        statuses = move(part, pack_with_suffixes(part, suffixes), pages, parent)
        bad = next((i for i, status in enumerate(statuses) if not status), len(statuses))
        good += bad // len(suffixes)
        if bad < len(statuses):
            return good, statuses[bad]
    return good, Status.ok
