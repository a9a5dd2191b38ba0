"""The calls of one process. Each takes a fixed time, so calls queue behind each other."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from peercached.membership import PushView
from peercached.peer.membership.embedded.heartbeats import PUSHES_AT_ONCE_MAX

if TYPE_CHECKING:
    from sim.members import Node


class Calls:
    """Each call takes `node.cluster.call_s` seconds. With 0 every call runs at once."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._busy_until = 0.0
        self._pushes: deque[PushView] = deque()
        self._pushing = 0

    def serve(self, call: Callable[[], None]) -> None:
        net, call_s = self._node.net, self._node.cluster.call_s
        if not call_s:
            call()
            return
        self._busy_until = max(self._busy_until, net.now) + call_s
        net.after(self._busy_until - net.now, lambda: self._node.do(call))

    def push(self, action: PushView) -> None:
        if self._node.cluster.call_s:
            self._pushes.append(action)
            self._next()
        else:
            us, to = self._node, action.to.node_id
            us.net.send(us.name, to, partial(us.cluster.beat_to, to, action.beat))

    def _next(self) -> None:
        """Limits concurrent pushes and skips outdated ones, as
        peer/membership/embedded/heartbeats.py does."""
        while self._pushes and self._pushing < PUSHES_AT_ONCE_MAX:
            action = self._pushes.popleft()
            if action.beat.view_number >= self._node.membership.latest.number:
                self._pushing += 1
                self.serve(partial(self._push, action))

    def _push(self, action: PushView) -> None:
        us, to, ended = self._node, action.to.node_id, [False]

        def end() -> None:
            if not ended[0]:
                ended[0] = True
                self._pushing -= 1
                self._next()

        def asked() -> None:
            us.cluster.beat_to(
                to, action.beat, lambda _: us.net.send(to, us.name, lambda: us.do(end))
            )

        us.net.send(us.name, to, asked)
        us.net.after(us.cluster.timing.call_deadline_s, lambda: us.do(end))
