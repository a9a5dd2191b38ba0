"""A timeout for tasks that may be cancelled.

Before Python 3.12 asyncio.wait_for drops a cancellation that comes at the same moment as the
result. A loop around it then runs for ever, and so does the wait of the task that cancelled it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

Result = TypeVar("Result")


async def within(timeout_s: float | None, awaited: Awaitable[Result]) -> Result:
    """Returns the result, or raises asyncio.TimeoutError after `timeout_s` (None: never). If the
    wait ends early, `awaited` is cancelled."""
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
    """Fetches an error that comes after the wait, or asyncio would log it as never retrieved."""
    if not task.cancelled():
        task.exception()
