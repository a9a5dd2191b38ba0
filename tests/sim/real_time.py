"""Native threads beside virtual time. Virtual time stands still while a thread works. It goes on
once every thread has ended or waits for an answer from Python. So native work takes no virtual
time."""

from __future__ import annotations

import asyncio
import os
import select
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from harness.clock import seconds

from sim.loop import Loop

# No native call works this long, even on a busy machine.
STUCK_S = 60.0


class Busy(Protocol):
    """An object with native threads that may be working."""

    @property
    def is_busy(self) -> bool: ...
    @property
    def serves(self) -> bool: ...
    @property
    def incarnation(self) -> int: ...
    def pass_on(self) -> bool:
        """Passes their pending events to Python. Returns whether there were any."""


class RealTime:
    """Tracks native work, so that `loop` waits for it."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._poll = select.epoll()
        self._busy: dict[Busy, None] = {}
        self._on_readable: dict[int, Callable[[], object]] = {}
        self._ended: deque[Callable[[], object]] = deque()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK)
        self.watch(self._wake, self._take_ended)
        loop.wait_outside = self.wait

    def close(self) -> None:
        self._poll.close()
        os.close(self._wake)

    # --- native threads and descriptors

    def add(self, who: Busy) -> None:
        self._busy[who] = None

    def remove(self, who: Busy) -> None:
        self._busy.pop(who, None)

    def serving(self) -> set[int]:
        """The incarnations that serve."""
        return {who.incarnation for who in self._busy if who.serves}

    def watch(self, fd: int, on_readable: Callable[[], object]) -> None:
        """Calls `on_readable`, which must read the data, until `forget`."""
        self._poll.register(fd, select.EPOLLIN)
        self._on_readable[fd] = on_readable

    def forget(self, fd: int) -> None:
        if self._on_readable.pop(fd, None) is not None:
            self._poll.unregister(fd)

    def run(
        self, work: Callable[[], Any], ended: Callable[[], object]
    ) -> tuple[threading.Thread, asyncio.Future[Any]]:
        """Runs `work` on a thread of its own, since it waits for Python. Calls `ended` before the
        future gets its result."""
        future = self._loop.create_future()

        def end(give: Callable[[Any], None], what: Any) -> None:
            ended()
            if not future.done():
                give(what)

        def begin() -> None:
            give: Callable[[Any], None] = future.set_result
            try:
                found = work()
            except Exception as error:
                give, found = future.set_exception, error
            self._ended.append(partial(end, give, found))
            os.eventfd_write(self._wake, 1)

        thread = threading.Thread(target=begin)
        thread.start()
        return thread, future

    def _take_ended(self) -> None:
        os.eventfd_read(self._wake)
        while self._ended:
            self._ended.popleft()()

    # --- the loop's side

    def wait(self) -> bool:
        """Waits until no thread works, or until there are events, which Python must handle first.
        Returns whether there were any."""
        if any(who.pass_on() for who in self._busy):
            return True
        busy = [who for who in self._busy if who.is_busy]
        readable = self._poll.poll(seconds(STUCK_S) if busy else 0)
        for fd, _ in readable:
            if fd in self._on_readable:
                self._on_readable[fd]()
        assert readable or not busy, f"a native call neither ends nor asks anything at {busy}"
        return bool(readable)
