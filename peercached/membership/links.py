"""Schedules this node's heartbeats: to all masters in parallel, each with its own timer."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from peercached.membership.messages import HeartbeatAnswer
from peercached.membership.timing import Timing
from peercached.membership.view import NodeAddress, Verdict

RETRY_FIRST_S = 0.1
# Failed attempts before a start goes on without a master: 0.3 s if its host refuses connections.
TRIES = 3


@dataclass(slots=True)
class Link:
    """State of the heartbeats to one master, or to an address where one should be."""

    endpoint: str
    next_at: float
    heard: float  # last answer as a master; initially our start
    answered: bool = False  # the last attempt got an answer
    in_flight: bool = False
    attempts: int = 0
    failures: int = 0  # in a row
    verdict: Verdict = Verdict.UNSPECIFIED
    responder: str = ""
    reason: str = ""  # of the verdict
    problem: str = "not asked yet"
    refuses: bool = False  # something answered, but not as a master that takes us
    send_view: bool = False
    is_head: bool = False
    place: int = 0  # of a head, in discovery_addr: one name may stand for several
    led_home: bool = False  # this very process answered at last
    former: NodeAddress | None = None  # the only process to send to (former.py); no master
    beat_at: float = 0.0  # next heartbeat, unless signs of life delay it
    full_at: float = 0.0  # next heartbeat, in spite of signs of life

    @property
    def tried(self) -> bool:
        """It answered, or failed TRIES times: on a busy machine a single answer may be late."""
        return self.answered or self.failures >= TRIES

    def says(self, *verdicts: Verdict) -> bool:
        """Whether its last answer was one of these. A few failed attempts do not take that back.
        The word of a former member does not count: it may be of another part."""
        return self.verdict in verdicts and self.failures < TRIES and self.former is None


class Links:
    """Not thread safe; `now` is monotonic seconds."""

    def __init__(
        self,
        heads: Iterable[str],
        also: Iterable[str],
        timing: Timing,
        now: float,
        rng: random.Random,
    ) -> None:
        self._timing = timing
        self._rng = rng
        self._links = {e: Link(e, now, now, is_head=True, place=i) for i, e in enumerate(heads)}
        for endpoint in also:
            self._links.setdefault(endpoint, Link(endpoint, now, now))

    def __iter__(self) -> Iterator[Link]:
        return iter(self._links.values())

    def get(self, endpoint: str) -> Link | None:
        return self._links.get(endpoint)

    def heads_are(self, places: Mapping[str, int], now: float) -> None:
        """Sends to these heads from now on, by endpoint, each with its place in discovery_addr."""
        old, self._links = self._links, {}
        for endpoint, place in places.items():
            link = old.pop(endpoint) if endpoint in old else Link(endpoint, now, now)
            self._links[endpoint] = link
            link.is_head, link.place, link.former = True, place, None
        for endpoint, link in old.items():
            if not link.is_head or link.answered:  # a master, perhaps
                link.is_head = False
                self._links[endpoint] = link

    def aim(
        self, masters: Iterable[tuple[str, str]], former: Iterable[NodeAddress], now: float
    ) -> None:
        """Sends to these masters, as (node id, endpoint), to these former members and to the heads
        from now on. A master that is also a head under another address gets one link, not two."""
        old = self._links
        self._links = {e: link for e, link in old.items() if link.is_head}
        heads = {link.responder for link in self._links.values() if link.answered}
        for node_id, endpoint in masters:
            if endpoint in self._links or node_id in heads:
                continue
            self._links[endpoint] = old.get(endpoint) or Link(endpoint, now, now)
            self._links[endpoint].former = None
        for address in former:
            if address.endpoint not in self._links:
                link = old.get(address.endpoint) or Link(address.endpoint, now, now)
                link.former = address
                self._links[address.endpoint] = link

    @property
    def has_head(self) -> bool:
        """Whether a head answers."""
        return any(link.is_head and link.answered for link in self._links.values())

    def due(self, now: float) -> list[tuple[Link, bool]]:
        """Links to send a heartbeat on now, and whether it must carry our view."""
        found = []
        for link in self._links.values():
            if not link.in_flight and now >= link.next_at:
                found.append((link, link.send_view))
                link.in_flight, link.send_view = True, False
                link.attempts += 1
        return found

    def next_at(self) -> float:
        waiting = (link.next_at for link in self._links.values() if not link.in_flight)
        return min(waiting, default=float("inf"))

    def beat_now(self, now: float, with_view: bool = False) -> None:
        for link in self._links.values():
            link.next_at = link.full_at = now
            link.send_view = link.send_view or with_view

    def answered(self, endpoint: str, answer: HeartbeatAnswer, now: float) -> bool:
        """False: there is no such link any more."""
        link = self._links.get(endpoint)
        if link is None:
            return False
        link.in_flight = link.led_home = False
        link.answered = True
        link.failures = 0
        link.verdict, link.responder = answer.verdict, answer.responder
        link.problem = link.reason = answer.reason
        if answer.verdict not in (Verdict.NOT_A_MASTER, Verdict.UNSPECIFIED):
            link.heard = now
        # Jitter: a thousand nodes that started together must not send together.
        jitter = self._rng.uniform(0.9, 1.0)
        link.next_at = link.beat_at = now + self._timing.heartbeat_interval_s * jitter
        link.full_at = now + self._timing.full_beat_s * jitter
        if answer.wants_view:
            link.send_view, link.next_at = True, now
        return True

    def has_news(self, node_id: str) -> None:
        """That master's sign differs from our knowledge: stop delaying its heartbeat."""
        for link in self._links.values():
            if link.responder == node_id and link.answered and not link.in_flight:
                link.next_at = min(link.next_at, link.beat_at)

    def gave_sign(self, node_id: str, at: float) -> None:
        """That master answered us at `at`, without news: delay its heartbeat (signs.py)."""
        for link in self._links.values():
            if link.responder != node_id or not link.answered or link.in_flight:
                continue
            if link.verdict is Verdict.ACCEPTED:
                link.heard = max(link.heard, at)
                until = min(at + self._timing.sign_fresh_s, link.full_at)
                link.next_at = max(link.next_at, until)

    def failed(self, endpoint: str, problem: str, now: float, refuses: bool = False) -> None:
        link = self._links.get(endpoint)
        if link is None:
            return
        link.in_flight = False
        link.answered = False
        link.problem, link.refuses = problem, refuses
        pause = min(RETRY_FIRST_S * 2 ** min(link.failures, 16), self._timing.retry_max_s)
        link.failures += 1
        link.next_at = now + pause * self._rng.uniform(0.5, 1.0)

    def silence_s(self, masters: Collection[str], now: float) -> float:
        """For how long neither these masters (by endpoint) nor a head has answered as a master."""
        heard = (k.heard for k in self if k.is_head or k.endpoint in masters)
        return now - max(heard, default=now)

    def verdict_of_first(self) -> Link | None:
        """The first link, in order, with a master's answer. Its verdict counts if masters disagree
        about a newcomer. None while an earlier link may still answer."""
        for link in self._links.values():
            if link.former is not None:
                continue
            if link.answered and link.verdict is not Verdict.NOT_A_MASTER:
                return link
            if link.in_flight and link.failures == 0:
                return None  # its first attempt may still succeed
        return None

    def forgive(self, pause_s: float) -> None:
        for link in self._links.values():
            link.heard += pause_s
