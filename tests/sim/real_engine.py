"""The real data plane of a daemon, used in virtual time: pool, disk, removal journal, reads between
nodes, and the workers' socket. Only its events wait for Python in virtual time."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections import deque
from functools import partial

# Imported by name, because the simulation replaces them with its own clock.
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

from harness.clock import seconds
from harness.fake_engine import Heard

from peercached.config import Config
from peercached.data_plane.make import make_engine
from sim.homes import Home
from sim.real_time import RealTime
from sim.signs import Signs

if TYPE_CHECKING:
    from peercached._native import Engine
    from sim.cluster import SimNode

HOST = "127.0.0.1"
CLUSTER_KEY = b"of all simulated"
ANSWER_S = 2.0  # of a worker's call, in virtual time
# The same timeout on the data plane's real clock: too long to expire even on a busy machine.
PATIENCE_MS = 600_000
# Real seconds that followers get to take our changes, while virtual time stands still.
FOLLOWERS_S = 0.2

Event = tuple[Any, ...]  # (name, ticket, seconds left, fields...)
TAKE = 256


class RealEngine:
    """One start. `calls` counts the running calls of workers and hand-overs. Each of them waits for
    at most one answer from Python at a time."""

    def __init__(
        self, node: SimNode, config: Config, incarnation: int, home: Home, real_time: RealTime
    ) -> None:
        self.home = home
        self.serves = False  # workers can attach
        self.stopped = False
        self.calls = 0
        self.pool: dict[bytes, Any] = {}  # always empty: SimCluster needs to know of no pages here
        self.incarnation = incarnation
        self._waited_for = 0  # a position of our records (followers_behind)
        self._node = node
        self.signs = Signs(node)
        self._real_time = real_time
        self._events: deque[Event] = deque()
        self._told = False  # Python has been woken to take events
        self._asked: set[int] = set()  # tickets without an answer
        self._threads: list[threading.Thread] = []
        # The engine listens on HOST and a port of the kernel's choice. The daemon announces its
        # simulated host name with that port.
        reachable = config.model_copy(update={"host": HOST})
        self._native: Engine | None = make_engine(reachable, incarnation, CLUSTER_KEY)
        self._native.listen()
        self._event_fd = self._native.event_fd
        real_time.watch(self._event_fd, self._take)
        real_time.add(self)

    def __repr__(self) -> str:
        return f"{self._node.name}: {self.calls} calls, {len(self._asked)} questions"

    # --- for real_time.py

    @property
    def is_busy(self) -> bool:
        return self.calls > len(self._asked)

    def pass_on(self) -> bool:
        on_readable = self._node.process.on_readable
        self._take()  # fetches events that the real-time descriptor would report only later
        if not self._events or self._told or on_readable is None:
            return False
        self._told = True
        self._node.process.do(on_readable)
        return True

    def _take(self) -> None:
        while self._native is not None and (events := self._native.take_events(TAKE)):
            self._asked.update(ticket for _, ticket, *_ in events if ticket)
            self._events += events

    # --- the daemon's engine interface

    def __getattr__(self, name: str) -> Any:
        """Returns a method of the real engine without a reference that would keep the engine
        alive."""
        return partial(self._call, name)

    def _call(self, name: str, *args: Any, **more: Any) -> Any:
        return getattr(self._native, name)(*args, **more)

    @property
    def event_fd(self) -> int:
        return self._event_fd

    @property
    def data_port(self) -> int:
        return self._living.data_port

    @property
    def own_transports(self) -> dict[str, bytes]:
        return self._living.own_transports

    @property
    def removals_last(self) -> int:
        return self._living.removals_last

    @property
    def all_have_asked(self) -> bool:
        return self._living.all_have_asked

    @property
    def final_view(self) -> int:
        return self._living.final_view

    @property
    def state_is_old(self) -> bool:
        return self._living.state_is_old

    @property
    def _living(self) -> Engine:
        assert self._native is not None, f"{self._node.name} is no more"
        return self._native

    def take_events(self, limit: int) -> list[Event]:
        self._take()
        self._told = False
        some = [self._events.popleft() for _ in range(min(limit, len(self._events)))]
        return [
            (name, ticket, min(left_s, ANSWER_S), *more) for name, ticket, left_s, *more in some
        ]

    def answer(self, ticket: int, payload: bytes) -> None:
        self._asked.discard(ticket)
        if self._native is not None:
            self._native.answer(ticket, payload)

    def answer_removal(self, ticket: int, *outcome: Any) -> None:
        self._asked.discard(ticket)
        if self._native is not None:
            self._native.answer_removal(ticket, *outcome)

    def give_up(self, ticket: int) -> None:
        self._asked.discard(ticket)
        if self._native is not None:
            self._native.give_up(ticket)

    def set_life_sign(
        self, view_number: int, sequence: int, is_master: bool, for_s: float, /
    ) -> None:
        self.signs.say(view_number, sequence, is_master, for_s, self.epochs_mark())

    def take_life_signs(self) -> list[Heard]:
        return self.signs.take()

    def connect_node(self, index: int, host: str, *where: Any) -> None:
        del host
        self._living.connect_node(index, HOST, *where)

    def followers_behind(self, position: int) -> list[tuple[int, float]]:
        """Waits for followers that serve, once for each position: they take our changes in real
        time."""
        until = monotonic() + (seconds(FOLLOWERS_S) if position > self._waited_for else 0.0)
        self._waited_for = max(position, self._waited_for)
        while True:
            behind: list[tuple[int, float]] = self._call("followers_behind", position)
            waits = {who for who, _ in behind} & self._real_time.serving()
            if not waits or monotonic() > until:
                return behind
            sleep(0.001)

    def adopt(self, *offer: Any) -> asyncio.Future[Any]:
        """Runs on a thread, because it waits for Python to publish the pages."""
        self.calls += 1
        work = partial(self._call, "adopt", *offer[:-1], PATIENCE_MS)
        thread, adopted = self._real_time.run(work, self._adopted)
        self._threads.append(thread)
        return adopted

    def _adopted(self) -> None:
        self.calls -= 1

    def start(self) -> None:
        self._living.start()
        self.serves = True

    def stop(self) -> None:
        self.serves, self.stopped = False, True
        self._living.stop()

    # --- its end

    def end(self) -> None:
        """Called when the process ends. If the process was killed, not stopped, the next start
        finds the folders as a kill leaves them."""
        if self._native is None:
            return
        self.serves = False
        self._real_time.forget(self._event_fd)
        self._real_time.remove(self)
        left = None if self.stopped else self.home.leave_to_the_killed()
        self._native.stop()
        for thread in self._threads:
            thread.join()
        self._native = None
        if left is not None:
            shutil.rmtree(left)
