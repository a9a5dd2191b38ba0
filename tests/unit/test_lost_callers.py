from __future__ import annotations

import asyncio

import pytest
from grpc.aio import InternalError

from peercached.observe.lost_callers import expect_lost_callers


@pytest.mark.parametrize("error, is_said", [(InternalError("send"), False), (OSError(), True)])
def test_a_caller_that_went_away_is_no_error(
    error: Exception, is_said: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def fails() -> None:
        raise error

    async def call() -> None:
        expect_lost_callers(asyncio.get_running_loop())
        task = asyncio.ensure_future(fails())
        await asyncio.wait([task])
        del task  # nobody asks for its result

    asyncio.run(call())
    assert ("never retrieved" in caplog.text) is is_said
