"""How prefetches and stores of many requests end alike on all TP ranks.

Each rank's scheduler has a queue, gives all of them the same requests in the same order, and calls
`poll` once in each pass of its loop. What a rank has reached is then agreed on as the minimum over
all ranks, by a function that is passed in: a request is done when it is on every rank, as far as
the slowest and emptiest of them got. Whatever is decided is decided from agreed numbers, so the
queues of the ranks stay alike; a clock or a rank's own luck never counts.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final

from peercache_client.seldom import Seldom

_seldom = Seldom()

# One number of each entry to the minimum of it over all ranks; every rank gives as many.
Minimum = Callable[[list[int]], list[int]]

NOT_YET: Final = -1


def alone(values: list[int]) -> list[int]:
    """The minimum where there is one rank."""
    return values


def minimum_over(group: Any) -> Minimum:
    """Over the ranks of a torch.distributed group of the host (gloo)."""
    import torch
    import torch.distributed

    def minimum(values: list[int]) -> list[int]:
        tensor = torch.tensor(values, dtype=torch.int64)
        torch.distributed.all_reduce(tensor, op=torch.distributed.ReduceOp.MIN, group=group)
        agreed: list[int] = tensor.tolist()
        return agreed

    return minimum


def reached(future: Future[int], nothing: int) -> int:
    """How far it came; `nothing` for one that failed, or was cancelled before it began."""
    if not future.done():
        return NOT_YET
    # A cancelled future raises when it is asked for its exception, and would end the scheduler.
    if future.cancelled():
        return nothing
    error = future.exception()
    if error is None:
        return max(future.result(), nothing)
    _seldom.say(type(error).__name__, f"a request goes on without the cache: {error}")
    return nothing
