from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from grpc._cython import cygrpc  # type: ignore[attr-defined]
from grpc.aio import InternalError

from peercached.observe.lost_callers import expect_lost_callers
from peercached.peer.server.refusals import Refusals


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
        del task  # drops the task without awaiting its result

    asyncio.run(call())
    assert ("never retrieved" in caplog.text) is is_said


@pytest.mark.parametrize(
    "error, is_said", [(cygrpc.ExecuteBatchError("send"), False), (OSError(), True)]
)
def test_grpcs_own_log_of_a_vanished_caller_is_no_error(
    error: Exception, is_said: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def call() -> None:
        expect_lost_callers(asyncio.get_running_loop())
        try:
            raise error
        except Exception:
            cygrpc._LOGGER.exception("raised in core by a servicer method")

    asyncio.run(call())
    assert ("Traceback" in caplog.text) is is_said


@pytest.mark.parametrize(
    "error, is_said", [(cygrpc._ServerStoppedError("stopped"), False), (OSError(), True)]
)
def test_a_call_that_ends_with_the_server_is_no_error(
    error: Exception, is_said: bool, caplog: pytest.LogCaptureFixture
) -> None:
    aborted: list[Any] = []

    async def abort(*why: Any) -> None:
        aborted.append(why)

    context = SimpleNamespace(abort=abort)
    asyncio.run(Refusals().refuse(context, error))
    assert bool(aborted) is ("internal error in a peer's call" in caplog.text) is is_said
