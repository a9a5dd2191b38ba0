"""Makes prefetches and stores of many requests end alike on all TP ranks.

Each rank's scheduler has a queue. All ranks add the same requests in the same order, and call
`poll` once per pass of their loop. A function passed in then takes the minimum of each request's
progress over all ranks. A request is done when every rank is done, and it counts only as far as the
rank with the least progress. All decisions depend on these agreed numbers, never on one rank's
clock or timing, so the queues stay alike.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final

from peercache_client.connector.interface import Moved
from peercache_client.rate_limited_log import RateLimitedLog

_log_rarely = RateLimitedLog()

# Maps one number per entry to its minimum over all ranks. All ranks pass the same number of
# entries.
Minimum = Callable[[list[int]], list[int]]

NOT_YET: Final = -1


def alone(values: list[int]) -> list[int]:
    """The minimum for a single rank."""
    return values


def minimum_over(group: Any) -> Minimum:
    """Takes the minimum over the ranks of a torch.distributed CPU group (gloo)."""
    import torch
    import torch.distributed

    def minimum(values: list[int]) -> list[int]:
        tensor = torch.tensor(values, dtype=torch.int64)
        torch.distributed.all_reduce(tensor, op=torch.distributed.ReduceOp.MIN, group=group)
        agreed: list[int] = tensor.tolist()
        return agreed

    return minimum


def reached(future: Future[int] | Future[Moved], nothing: int) -> int:
    """How far the call came; `nothing` if it failed, or was cancelled before it began."""
    if not future.done():
        return NOT_YET
    # exception() of a cancelled future raises, which would end the scheduler.
    if future.cancelled():
        return nothing
    error = future.exception()
    if error is None:
        return max(future.result(), nothing)
    _log_rarely.say(type(error).__name__, f"a request goes on without the cache: {error}")
    return nothing
