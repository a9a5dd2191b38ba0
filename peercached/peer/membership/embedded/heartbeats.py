"""Drives Membership: sends its actions, feeds answers back, and keeps the clock."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from peercached.health import Say
from peercached.membership import (
    Action,
    Heartbeat,
    HeartbeatAnswer,
    Membership,
    NodeAddress,
    OwnSign,
    Probe,
    PushView,
    Refused,
    SendBeat,
    Timing,
    ViewChanged,
)
from peercached.membership.view import View
from peercached.news import News
from peercached.peer.membership.cluster import JoinRefused, ViewFound
from peercached.peer.membership.embedded import report as membership_report
from peercached.peer.membership.embedded.calls import LedHome, MemberCalls
from peercached.peer.membership.embedded.life_signs import LifeSigns
from peercached.peer.rpc.failures import CallFailed, Misfit, Unreachable
from peercached.peer.rpc.heads import Heads
from peercached.peer.rpc.tasks import Tasks
from peercached.timeout import within

log = logging.getLogger(__name__)

PUSHES_AT_ONCE_MAX = 64


@dataclass(eq=False)
class Heartbeats:
    _membership: Membership
    _timing: Timing
    _calls: MemberCalls
    _signs: LifeSigns
    _news: News
    _heads: Heads | None = None  # None if they never change

    def __post_init__(self) -> None:
        self._tasks = Tasks()
        self._pushing = asyncio.Semaphore(PUSHES_AT_ONCE_MAX)
        self._changed = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None  # of the next tick
        self._ticks_at = 0.0

    def start(self) -> None:
        if self._heads is not None:
            self._take(self._heads)
            self._tasks.spawn(self._follow(self._heads))
        self._tick()

    async def _follow(self, heads: Heads) -> None:
        while True:
            await heads.changed()
            self._take(heads)

    def _take(self, heads: Heads) -> None:
        self._membership.heads_are(heads.places(), time.monotonic())
        self.act([])

    @property
    def view(self) -> View:
        return self._membership.view

    @property
    def refused(self) -> str:
        return self._membership.refused

    @property
    def waits(self) -> str:
        return self._membership.waits

    @property
    def outside(self) -> bool:
        return self._membership.outside

    def endpoints(self) -> set[str]:
        return self._membership.endpoints()

    def has_left(self, node_id: str, incarnation: int) -> bool:
        return self._membership.has_left(node_id, incarnation)

    def document(self) -> dict[str, Any]:
        return membership_report.document(self._membership, time.monotonic())

    def say(self, say: Say) -> None:
        membership_report.say(self._membership, say, time.monotonic())

    async def settle(self, timeout_s: float) -> None:
        """Waits until this node is in a view, nobody answers, or it was refused; at most
        `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        while not self._membership.settled and (left := deadline - time.monotonic()) > 0:
            self._changed.clear()
            try:
                await within(left, self._changed.wait())
            except asyncio.TimeoutError:
                return

    def _tick(self) -> None:
        self._timer = None
        now, interval_s = time.monotonic(), self._timing.heartbeat_interval_s
        try:
            self._membership.hear(self._signs.take(now), now)
            self.act(self._membership.tick(now))
            # The sign expires when a tick is late, so a hung control plane gives no sign of life.
            self._signs.say(self._membership.own_sign(now), 1.5 * interval_s)
            # At least 1 ms ahead, or a time that is just past would make this a busy loop.
            self._tick_at(max(self._membership.next_at(now), now + 0.001), now)
        except Exception:
            log.exception("membership tick failed; will retry")
            self._tick_at(now + interval_s / 4, now)

    def _tick_at(self, at: float, now: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._ticks_at = at
        self._timer = asyncio.get_running_loop().call_later(at - now, self._tick)

    def act(self, actions: Iterable[Action]) -> None:
        for action in actions:
            if isinstance(action, SendBeat):
                self._tasks.spawn(self._beat(action))
            elif isinstance(action, PushView):
                self._tasks.spawn(self._push(action))
            elif isinstance(action, Probe):
                self._tasks.spawn(self._probe(action))
            elif isinstance(action, ViewChanged):
                self._news.post(ViewFound(action.view))
            elif isinstance(action, Refused):
                self._news.post(JoinRefused(action.reason))
        self._changed.set()
        if self._timer is not None:  # None during a tick, which sets the timer itself
            now = time.monotonic()
            at = max(self._membership.next_at(now), now + 0.001)
            if at < self._ticks_at:
                self._tick_at(at, now)

    # --- what others ask

    def on_heartbeat(self, beat: Heartbeat) -> HeartbeatAnswer:
        now = time.monotonic()
        # First take pending signs of life: a heartbeat that claims a member's node id is judged by
        # the time when that member was last heard.
        self._membership.hear(self._signs.take(now), now)
        answer, actions = self._membership.on_heartbeat(beat, now)
        self.act(actions)
        return answer

    async def reaches(self, target: NodeAddress) -> bool:
        """Whether this node reaches `target`; asked by a master that does not hear it."""
        if self._membership.just_heard(target, time.monotonic()):
            return True
        return await self._calls.ping(target)

    # --- what we ask

    async def _beat(self, action: SendBeat) -> None:
        endpoint = action.endpoint
        try:
            answer = await self._calls.heartbeat(endpoint, action.beat, action.only)
        except LedHome:
            self.act(self._membership.led_home(endpoint, time.monotonic()))
        except (CallFailed, ValueError) as error:
            refuses = isinstance(error, Misfit) or not isinstance(error, Unreachable)
            self._failed(endpoint, str(error), refuses)
        except Exception as error:
            self._failed(endpoint, f"{type(error).__name__}: {error}")
            raise
        else:
            self.act(self._membership.answered(endpoint, answer, time.monotonic()))

    def _failed(self, endpoint: str, problem: str, refuses: bool = False) -> None:
        link = self._membership.links.get(endpoint)
        is_news = link is not None and (link.answered or link.attempts == 1)
        if link is not None and is_news and link.former is None:
            log.warning("master %s cannot be reached: %s", endpoint, problem)
        self.act(self._membership.failed(endpoint, problem, time.monotonic(), refuses))

    async def _push(self, action: PushView) -> None:
        async with self._pushing:
            if action.beat.view_number < self._membership.latest.number:
                return  # a newer view follows
            try:
                await self._calls.heartbeat(action.to.endpoint, action.beat)
            except (CallFailed, ValueError) as error:
                log.debug("view %d not pushed: %s", action.beat.view_number, error)

    async def _probe(self, probe: Probe) -> None:
        # Send every probe at once: one that queued behind probes of dead nodes would count as
        # unanswered. roster.py bounds their number.
        if probe.via is None:
            alive = await self._calls.ping(probe.target)
        else:
            alive = await self._calls.probe(probe.via, probe.target)
        self.act(self._membership.probed(probe, alive, time.monotonic()))

    # --- what we announce

    def announce_drain(self) -> None:
        """Shows the state LEAVING to the other nodes: this node is about to leave."""
        self.act(self._membership.announce_drain(time.monotonic()))

    def announce_stay(self) -> None:
        self.act(self._membership.announce_stay(time.monotonic()))

    async def leave(self, timeout_s: float) -> None:
        """Says goodbye to the masters in parallel. A master that misses it finds out by the TTL.
        Raises asyncio.TimeoutError after `timeout_s`."""
        self._signs.say(OwnSign(), 0.0)
        words: dict[str, Heartbeat] = {}
        for action in self._membership.announce_leave(time.monotonic()):
            if isinstance(action, SendBeat):
                words[action.endpoint] = action.beat
            elif isinstance(action, PushView):
                words[action.to.endpoint] = action.beat  # this heartbeat also says that we leave
        await self._calls.goodbye(words, timeout_s)

    async def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        await self._tasks.stop()
