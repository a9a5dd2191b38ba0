"""A wait with an end, in tasks that are cancelled from elsewhere.

Before Python 3.12 asyncio.wait_for drops a cancellation that comes in the same moment as what it
waits for. A loop around it never ends then, and neither does who cancels it and waits for its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

Result = TypeVar("Result")


async def within(timeout_s: float | None, awaited: Awaitable[Result]) -> Result:
    """asyncio.TimeoutError after that time, None: never. Whatever ends the wait early ends what is
    waited for."""
    task: asyncio.Future[Result] = asyncio.ensure_future(awaited)
    try:
        done, _ = await asyncio.wait((task,), timeout=timeout_s)
        if not done:
            raise asyncio.TimeoutError
        return task.result()
    finally:
        task.cancel()
        task.add_done_callback(_heard)


def _heard(task: asyncio.Future[Result]) -> None:
    """An error that comes after the wait is nobody's."""
    if not task.cancelled():
        task.exception()
