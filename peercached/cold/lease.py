"""One sweeper at a time, without comparing clocks.

    sweeper/NUMBER    created once, with the name of its holder inside

The holder of the highest number sweeps. It renews by creating the next number, and may sweep for
half of LEASE_S from the begin of that put. Any node that sees the highest number unchanged for
LEASE_S of its own clock creates the next one. The store creates each number once, so only one node
gets it.

A holder that was frozen may have one request under way when another one begins. Two sweepers at
once do no harm (sweeper.py); they only cost requests.
"""

from __future__ import annotations

import re
import time

from peercached.cold.requests import Requests, StoreError

FOLDER = "sweeper"
HOLDER_BYTES_MAX = 256
NUMBERS_MAX = 1 << 16
HOLD_SHARE = 0.5
RENEW_SHARE = 0.25

_NAME = re.compile(rf"{FOLDER}/(\d{{16}})")


class Lease:
    """On the event loop's thread. `own_name`: unique to this process."""

    def __init__(self, requests: Requests, own_name: str, lease_s: float) -> None:
        self._requests = requests
        self._own_name = own_name
        self._lease_s = lease_s
        self._seen: int | None = None  # the highest number
        self._seen_since = 0.0
        self._own_number = -1
        self._held_until = float("-inf")
        self.holder = ""  # of the highest number
        self.taken = 0

    @property
    def is_held(self) -> bool:
        return time.monotonic() < self._held_until

    async def look(self) -> bool:
        """Renews the lease, or takes it if its holder is silent. Returns whether we have it.
        StoreError if the store does not answer."""
        if self.is_held and self._held_until - time.monotonic() > RENEW_SHARE * self._lease_s:
            return True
        began = time.monotonic()
        numbers = await self._numbers()
        highest = max(numbers, default=0)
        if highest == self._own_number:
            await self._take(highest, numbers)
        elif highest != self._seen:
            self._held_until = float("-inf")  # another one has taken it
            self._seen, self._seen_since = highest, time.monotonic()
            self.holder = await self._holder_of(highest)
        elif began - self._seen_since >= self._lease_s:
            await self._take(highest, numbers)
        return self.is_held

    async def _numbers(self) -> list[int]:
        paths = await self._requests.names(FOLDER, "", NUMBERS_MAX)
        return [int(found[1]) for path in paths if (found := _NAME.fullmatch(path))]

    async def _holder_of(self, number: int) -> str:
        if not number:
            return ""
        try:
            name = await self._requests.get(_path(number), HOLDER_BYTES_MAX)
        except StoreError as error:
            if error.kind == "missing":
                return ""
            raise
        text = name.decode(errors="replace")
        return text if text.isprintable() else repr(text)

    async def _take(self, highest: int, numbers: list[int]) -> None:
        began = time.monotonic()
        if not await self._requests.put(_path(highest + 1), self._own_name.encode()):
            return  # another one was faster
        if highest != self._own_number:
            self.taken += 1
        self._own_number = self._seen = highest + 1
        self._held_until = began + HOLD_SHARE * self._lease_s
        self.holder = self._own_name
        for number in numbers:
            await self._requests.delete(_path(number))


def _path(number: int) -> str:
    return f"{FOLDER}/{number:016d}"
