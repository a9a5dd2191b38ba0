"""What the worker that removes is told."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from peercached.membership import NodeAddress
from peercached.peer.removal_driver import CLEARED, Open, RemovalDriver


def test_a_removal_that_is_cleared_at_the_last_moment_is_not_answered_ok() -> None:
    """While it is written down as not sure, the driver learns of a clear: the keys have other
    digests now, and nobody has removed those."""
    driven: list[Open] = []

    async def keep_soon() -> None:
        driven[0].cleared = True
        driven[0].done.set()

    def drive(one: Open) -> asyncio.Task[None]:
        driven.append(one)
        return asyncio.ensure_future(asyncio.sleep(60))

    async def claim() -> int:
        own = SimpleNamespace(address=NodeAddress("a", 1, "10.0.0.1", 1, 2))
        member = SimpleNamespace(unsure={}, keep_soon=keep_soon)
        driver = RemovalDriver(
            cast(Any, member),
            cast(Any, SimpleNamespace(own=own)),
            peers=cast(Any, None),
            trouble=cast(Any, None),
            timeout_s=1.0,
            waits=str,
        )
        cast(Any, driver)._drive = drive
        status, _, _ = await driver.remove(bytes(16), left_s=0.1)
        return status

    assert asyncio.run(claim()) == CLEARED
