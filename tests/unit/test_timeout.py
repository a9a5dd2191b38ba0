"""A cancelled wait ends, even if its result arrives at the same moment."""

import asyncio
import contextlib

import pytest
from harness.clock import seconds

from peercached.timeout import within


@pytest.mark.parametrize("turns", range(6))
async def test_a_cancellation_in_the_moment_of_the_result_ends_the_loop(turns: int) -> None:
    async def serve(event: asyncio.Event) -> None:
        while True:
            with contextlib.suppress(asyncio.TimeoutError):
                await within(60.0, event.wait())
            event.clear()

    event = asyncio.Event()
    task = asyncio.ensure_future(serve(event))
    await asyncio.sleep(0.01)
    event.set()
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    done, _ = await asyncio.wait((task,), timeout=seconds(1.0))
    assert done and task.cancelled()


async def test_within_returns_the_result_raises_the_error_or_times_out() -> None:
    async def answer() -> int:
        await asyncio.sleep(0)
        return 7

    async def fail() -> int:
        raise LookupError

    assert await within(1.0, answer()) == 7
    assert await within(None, answer()) == 7
    with pytest.raises(LookupError):
        await within(1.0, fail())
    never = asyncio.get_running_loop().create_future()
    with pytest.raises(asyncio.TimeoutError):
        await within(0.01, never)
    assert never.cancelled()
