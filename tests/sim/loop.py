"""An asyncio event loop in virtual time, shared by many processes. Work that a process starts runs
in its context and by its clock. It waits while the process hangs, and never runs after its
death."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextvars import Context, ContextVar, copy_context
from itertools import count
from typing import Any

from sim.net import Net, Work

# Longest delay of thread work before it starts, and again before its result reaches the loop.
THREAD_S = 0.05
# Converting between clocks rounds. Timers fire this late, so that the owner's clock has surely
# reached the time when it looks.
LATE_S = 1e-6

_current: ContextVar[Process] = ContextVar("process")


class _Task(asyncio.Task[Any]):
    """A task hashed by its number, so that a set of tasks has the same order in every run of a
    seed."""

    _numbers = count(1)
    process: Process

    def __new__(cls, *args: Any, **more: Any) -> _Task:
        task = super().__new__(cls)
        task.number = next(cls._numbers)
        return task

    number: int

    def __hash__(self) -> int:
        return self.number


class Process:
    """One start of a daemon."""

    def __init__(self, loop: Loop, name: str, skew_s: float, drift: float) -> None:
        self.name = name
        self.skew_s, self.drift = skew_s, drift
        self.up = True
        self.hung = False
        self.on_readable: Callable[[], None] | None = None
        self._loop = loop
        self._held: list[asyncio.Handle] = []
        self._context = copy_context()
        self._context.run(_current.set, self)

    @property
    def clock(self) -> float:
        return self.skew_s + self.drift * self._loop.net.now

    def answers(self) -> bool:
        return self.up and not self.hung

    def run(self, work: Callable[..., Any], *args: Any) -> Any:
        """Runs at once, even if the process hangs, because the story itself intervenes."""
        return self._context.run(work, *args)

    def do(self, work: Work) -> None:
        """Runs `work` soon, or after a hang ends, or never if the process is dead."""
        if self.up:
            self._loop.call_soon(work, context=self._context)

    def hold(self, handle: asyncio.Handle) -> None:
        self._held.append(handle)

    def resume(self) -> None:
        self.hung = False
        held, self._held = self._held, []
        for handle in held:
            self._loop.put(handle, self)

    def kill(self) -> None:
        """Kills the process and drops all its pending work."""
        self.up = self.hung = False
        self._held.clear()


class InProcess:
    """A node that runs in a process of its own."""

    process: Process

    @property
    def clock(self) -> float:
        return self.process.clock

    @property
    def hung(self) -> bool:
        return self.process.hung

    @hung.setter
    def hung(self, hung: bool) -> None:
        self.process.hung = hung

    def resume(self) -> None:
        self.process.resume()


class Loop(asyncio.AbstractEventLoop):
    """Runs the queue of `net` and the callbacks that become ready. `problems` lists unhandled
    exceptions."""

    def __init__(self, net: Net) -> None:
        self.net = net
        self.problems: list[str] = []
        self.thread_s = THREAD_S
        # Waits for native threads that work in real time (real_time.py). Returns whether they
        # produced work.
        self.wait_outside: Callable[[], bool] = lambda: False
        # Includes the tasks of dead processes: garbage collection would run their cleanup code.
        self._tasks: dict[_Task, None] = {}
        self._forget_at = 0
        self._ready: deque[tuple[asyncio.Handle, Process | None]] = deque()

    # --- time

    def time(self) -> float:
        """The clock of the calling process, or virtual time outside of any process."""
        process = _current.get(None)
        return self.net.now if process is None else process.clock

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Makes this the running loop."""
        outer = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            yield
        finally:
            asyncio._set_running_loop(outer)

    def run_until(self, time: float) -> None:
        """Runs until this virtual time. The caller has made this the running loop."""
        net = self.net
        while True:
            while self._ready:
                self._run(*self._ready.popleft())
            if self.wait_outside():
                continue
            if not net.due(time):
                break
            net.step()
        net.now = time

    def _run(self, handle: asyncio.Handle, process: Process | None) -> None:
        if process is None or process.answers():
            if not handle.cancelled():
                handle._run()
        elif process.up:
            process.hold(handle)

    def put(self, handle: asyncio.Handle, process: Process | None) -> None:
        self._ready.append((handle, process))

    # --- asyncio's loop interface

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, Any], *, name: str | None = None, **more: Any
    ) -> asyncio.Task[Any]:
        task = _Task(coro, loop=self, name=name, **more)
        task.process = _current.get()
        self._tasks[task] = None
        return task

    def forget(self) -> None:
        """Drops finished tasks, once they may be half of all."""
        if len(self._tasks) >= self._forget_at:
            self._tasks = {task: None for task in self._tasks if not task.done()}
            self._forget_at = 2 * len(self._tasks) + 1000

    def close(self) -> None:
        """Closes all unfinished tasks. The caller has made this the running loop."""
        self._ready.clear()
        for task in self._tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            coro = task.get_coro()
            while getattr(coro, "cr_frame", None) is not None:
                with contextlib.suppress(Exception):  # the coroutine may await while it closes
                    coro.close()

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        context = copy_context() if context is None else context
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append((handle, context.get(_current)))
        return handle

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., Any],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        context = copy_context() if context is None else context
        process = context.get(_current)
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        left_s = when - self.net.now if process is None else (when - process.clock) / process.drift
        self.net.after(max(left_s, 0.0) + LATE_S, lambda: self._run(handle, process))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Does nothing: a cancelled timer stays in the queue until its time."""

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.problems.append(f"{context['message']}: {type(error).__name__}: {error}")

    # --- threads and sockets

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, work: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Runs `work` after one delay, and delivers its result after another. If `work` returns a
        future, the simulated thread waits for that."""
        del executor
        future, rng = self.create_future(), self.net.rng

        def end(give: Callable[[Any], None], what: Any) -> None:
            if not future.done():
                give(what)

        def done(found: Any) -> None:
            if isinstance(found, asyncio.Future):
                found.add_done_callback(lambda inner: done(inner.result()))
            else:
                self.call_later(rng.uniform(0, self.thread_s), end, future.set_result, found)

        def run() -> None:
            try:
                found = work(*args)
            except Exception as error:
                self.call_soon(end, future.set_exception, error)
            else:
                done(found)

        self.call_later(rng.uniform(0, self.thread_s), run)
        return future

    def add_reader(  # type: ignore[override]
        self, fd: Any, callback: Callable[..., Any], *args: Any
    ) -> None:
        """Keeps the callback without its descriptor: a process reads only its engine's events."""
        del fd
        _current.get().on_readable = lambda: callback(*args)

    def remove_reader(self, fd: Any) -> bool:
        del fd
        _current.get().on_readable = None
        return True


def this_process() -> Process:
    return _current.get()
