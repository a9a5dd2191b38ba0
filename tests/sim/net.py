"""Virtual time, and a network with delays, loss, duplicates and cuts. All randomness comes from one
seed, so a failed run can be repeated exactly."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

Work = Callable[[], object]

# A connection resends a lost packet after this time.
RESEND_S = 0.2
# A connection ends if keepalive probes at this interval fail twice in a row.
KEEPALIVE_S = 6.0
UNSTALL_S = 0.25


class Net:
    """Probabilities and cuts stay in force until `calm()`."""

    def __init__(self, seed: int, drop: float = 0.0, double: float = 0.0, delay_s: float = 0.02):
        self.rng = random.Random(seed)
        self.now = 0.0
        self.drop, self.double, self.delay_s = drop, double, delay_s
        self.cuts: set[tuple[str, str]] = set()  # (from, to): nothing gets through
        self.messages = 0
        self._queue: list[tuple[float, int, Work]] = []
        self._order = count()

    def after(self, delay_s: float, work: Work) -> None:
        heapq.heappush(self._queue, (self.now + delay_s, next(self._order), work))

    def delay(self) -> float:
        return self.rng.uniform(0.0005, self.delay_s)

    def send(self, source: str, to: str, work: Work) -> None:
        """Sends an independent message: it may be lost or arrive twice."""
        self.messages += 1
        for _ in range(1 + (self.rng.random() < self.double)):
            if (source, to) not in self.cuts and self.rng.random() >= self.drop:
                self.after(self.delay(), work)

    def carry(self, source: str, to: str, work: Work) -> None:
        """Sends part of a call on a connection. It arrives once and complete, perhaps late. Across
        a cut it never arrives."""
        self.messages += 1
        if (source, to) not in self.cuts:
            self.after(self.delay() + self.resends_s(), work)

    def resends_s(self) -> float:
        late = 0.0
        while self.rng.random() < self.drop:
            late += RESEND_S
        return late

    def calm(self) -> None:
        self.drop = self.double = 0.0
        self.cuts.clear()

    def due(self, time: float) -> bool:
        """Whether the queue has work until `time`."""
        return bool(self._queue) and self._queue[0][0] <= time

    def step(self) -> None:
        self.now, _, work = heapq.heappop(self._queue)
        work()

    def run_until(self, time: float) -> None:
        while self.due(time):
            self.step()
        self.now = time


@dataclass
class End:
    """One end of a connection. `do` runs work now, or after a hang ends, or never if the node is
    down. `ended` is called once when the connection ends, unless this end closed it itself."""

    name: str
    do: Callable[[Work], None]
    ended: Work
    answers: Callable[[], bool]  # its process is up and does not hang
    closed: bool = False
    last: float = 0.0  # when the last message in flight arrives
    stalled: list[Work] = field(default_factory=list)


class Line:
    """A connection, ordered in each direction. A cut stalls it, and ends it if the cut lasts."""

    def __init__(self, net: Net, ends: tuple[End, End]) -> None:
        self._net = net
        self._ends = ends
        self._silent = False
        net.after(KEEPALIVE_S, self._keep_alive)

    def send(self, sender: int, work: Work) -> None:
        net, to = self._net, self._ends[1 - sender]
        if self._ends[sender].closed:
            return
        net.messages += 1
        to.last = max(to.last, net.now + net.delay() + net.resends_s())
        net.after(to.last - net.now, lambda: self._arrive(1 - sender, work))

    def close(self, closer: int) -> None:
        """The other end learns of it after everything that was sent before."""
        if not self._ends[closer].closed:
            self.send(closer, lambda: self._end(1 - closer))
            self._ends[closer].closed = True

    def _cut(self, to: int) -> bool:
        return (self._ends[1 - to].name, self._ends[to].name) in self._net.cuts

    def _arrive(self, at: int, work: Work) -> None:
        end = self._ends[at]
        if end.closed:  # its kernel answers with a reset
            if not self._cut(1 - at):
                self._net.after(self._net.delay(), lambda: self._end(1 - at))
            return
        if end.stalled or self._cut(at):
            end.stalled.append(work)
            if len(end.stalled) == 1:
                self._net.after(UNSTALL_S, lambda: self._unstall(at))
        else:
            end.do(lambda: None if end.closed else work())

    def _unstall(self, at: int) -> None:
        end = self._ends[at]
        if self._cut(at) and not end.closed:
            self._net.after(UNSTALL_S, lambda: self._unstall(at))
            return
        works, end.stalled = end.stalled, []
        for work in works:
            self._arrive(at, work)

    def _end(self, at: int) -> None:
        end = self._ends[at]
        if not end.closed:
            end.closed = True
            end.do(end.ended)

    def _keep_alive(self) -> None:
        if self._ends[0].closed and self._ends[1].closed:
            return
        silent = self._cut(0) or self._cut(1)
        for at, end in enumerate(self._ends):
            other = self._ends[1 - at]
            gone = silent or other.closed or not other.answers()
            if gone and self._silent and end.answers():
                self._end(at)
        self._silent = silent or any(end.closed or not end.answers() for end in self._ends)
        self._net.after(KEEPALIVE_S, self._keep_alive)
