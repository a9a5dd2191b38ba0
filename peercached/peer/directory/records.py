"""Where pages of other nodes are, for those who do not wait in native code."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from peercached._native import Engine

# Searches at a time. Each blocks its thread while owners are asked.
THREADS = 8
# Seconds kept back for the answer's way to the worker.
MARGIN_S = 0.002


class Records:
    """Use it on the event loop's thread. Blocking calls run on threads of its own."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._threads = ThreadPoolExecutor(THREADS, "records")

    async def find(self, digests: bytes, left_s: float) -> bytes:
        """Packed records of these digests at other nodes: all that are found within `left_s`."""
        if not digests:
            return b""
        left_ms = max(round(1000 * (left_s - MARGIN_S)), 1)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            self._threads, self._engine.find_records, digests, left_ms
        )

    async def at_owner(
        self, owner: int, digests: bytes, left_s: float
    ) -> tuple[bytes, bool] | None:
        """Returns all that one owner knows, and whether it is complete. None: it did not answer."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            self._threads, self._engine.ask_owner, owner, digests, max(round(1000 * left_s), 1)
        )

    async def stop(self) -> None:
        await asyncio.get_running_loop().run_in_executor(
            None, lambda: self._threads.shutdown(wait=True, cancel_futures=True)
        )
