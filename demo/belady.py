"""The highest number of block hits that any cache could reach on a sequence of requests.

A request hits the cached leading blocks of its chain. Afterwards its whole chain and its answer may
be cached. Equal blocks have equal prefixes, so a request for a block asks for all blocks before it
too, just before it. The block with the farthest next use is therefore always the tail of a chain.
So Belady's MIN never cuts a prefix short (L. A. Belady, "A study of replacement algorithms for a
virtual-storage computer", 1966).
"""

import heapq
from collections.abc import Sequence

from demo.workload import Request

_NEVER = 1 << 62


def best_hits_unbounded(requests: Sequence[Request]) -> int:
    """Block hits of a cache that never evicts."""
    seen: set[int] = set()
    hits = 0
    for request in requests:
        for block in request.chain:
            if block not in seen:
                break
            hits += 1
        seen.update(request.chain, request.answer)
    return hits


def best_hits(requests: Sequence[Request], capacity_blocks: int) -> int:
    """Block hits of a cache of `capacity_blocks` that knows the future. O(n log n)."""
    if capacity_blocks < 1:
        return 0
    references: list[tuple[int, bool]] = []  # (block, True: may count as a hit; False: only set)
    for request in requests:
        references += [(block, True) for block in request.chain]
        references += [(block, False) for block in request.answer]

    next_use = [_NEVER] * len(references)
    upcoming: dict[int, int] = {}
    for place in range(len(references) - 1, -1, -1):
        block, counted = references[place]
        next_use[place] = upcoming.get(block, _NEVER)
        if counted:
            upcoming[block] = place

    cached: dict[int, int] = {}  # block -> its next use
    farthest: list[tuple[int, int]] = []  # (-next use, block); outdated entries stay in it
    hits = 0
    for place, (block, counted) in enumerate(references):
        if block in cached and counted:
            hits += 1
        cached[block] = next_use[place]
        heapq.heappush(farthest, (-next_use[place], block))
        while len(cached) > capacity_blocks:  # may evict the new block itself
            use, victim = heapq.heappop(farthest)
            if cached.get(victim) == -use:
                del cached[victim]
    return hits
