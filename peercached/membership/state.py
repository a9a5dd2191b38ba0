"""Membership as a state machine: events and `now` in, actions out.

Every daemon heartbeats all configured heads in parallel. Each head keeps its own table of
whom it heard; the *acting* head, the first configured one that is alive in its own eyes,
makes the numbered views, the others adopt them. The higher number wins everywhere.

Numbers never meet: of n heads, the one of rank r makes only numbers that are r modulo n. So
two heads that acted on both sides of a partition cannot have made different views of one
number, and a member that reports its number reports which view it has.

A head that restarts knows nobody. Publishing what it knows would throw the running members
out; so while it has been told (by heartbeats) of a view whose members it has not seen, it
publishes nothing for one TTL, in which every living member is heard.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from peercached.membership.head import HeadTable
from peercached.membership.timing import Timing
from peercached.membership.view import VIEW_NUMBER_MAX, NodeAddress, Verdict, View

# Joins that come together make one view, not one each: every view is a resync of all streams.
VIEW_SPACING_S = 0.05
RETRY_FIRST_S = 0.1


@dataclass(frozen=True, slots=True)
class Heartbeat:
    sender: NodeAddress
    view_number: int
    is_head: bool = False
    view: View | None = None  # heads only: what they go by


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer:
    verdict: Verdict
    reason: str = ""
    view: View | None = None  # when newer than the sender's
    responder: str = ""


@dataclass(frozen=True, slots=True)
class SendHeartbeat:
    """To the head of that rank; report `answered` or `failed`."""

    head: int
    beat: Heartbeat


@dataclass(frozen=True, slots=True)
class PushView:
    """Tell a member of a new view at once; if it does not arrive, its next heartbeat brings it."""

    to: NodeAddress
    beat: Heartbeat


@dataclass(frozen=True, slots=True)
class ViewChanged:
    view: View


@dataclass(frozen=True, slots=True)
class Refused:
    """This node id is alive elsewhere. A daemon that starts must stop; one that runs is on
    its own until the other is gone."""

    reason: str


Action = SendHeartbeat | PushView | ViewChanged | Refused


@dataclass(slots=True)
class HeadLink:
    """What this node knows of one head."""

    endpoint: str
    next_at: float
    heard: float  # last answer; the start counts as one, so that nobody takes over too early
    answered: bool = False  # the last attempt was
    in_flight: bool = False
    attempts: int = 0
    failures: int = 0  # in a row
    verdict: Verdict = Verdict.UNSPECIFIED
    problem: str = "not asked yet"


class Membership:
    """Not thread safe; `now` is monotonic seconds, the same clock in all calls.

    `heads` are the configured endpoints in order; `own_rank` is this node's place among them,
    None if it is no head. Without heads the node is a cluster of its own.
    """

    def __init__(
        self,
        address: NodeAddress,
        heads: Sequence[str],
        own_rank: int | None,
        timing: Timing,
        now: float,
        rng: random.Random,
    ) -> None:
        self.address = address
        self.view = View.alone(address)
        self.refused = ""
        self.own_rank = own_rank
        self.heads = [HeadLink(endpoint, now, now) for endpoint in heads]
        self._timing = timing
        self._rng = rng
        self._table = HeadTable(address, timing)
        self._seen = 0  # the largest view number whose members we know
        self._told = 0  # the largest view number anybody mentioned
        self._told_at = now
        self._made_at = now - VIEW_SPACING_S
        if own_rank is not None:
            self.heads[own_rank].problem = ""

    # --- what this node asks of the heads

    def tick(self, now: float) -> list[Action]:
        actions: list[Action] = []
        for rank, head in enumerate(self.heads):
            if rank == self.own_rank or head.in_flight or now < head.next_at:
                continue
            head.in_flight = True
            head.attempts += 1
            actions.append(SendHeartbeat(rank, self._beat()))
        return actions + self._lead(now)

    def next_at(self, now: float) -> float:
        """When to call tick() again at the latest."""
        times = [now + self._timing.heartbeat_interval_s]
        times += [
            head.next_at
            for rank, head in enumerate(self.heads)
            if rank != self.own_rank and not head.in_flight
        ]
        if self.own_rank is not None:
            times.append(self._table.next_expiry())
            times += [
                at
                for at in (
                    self._made_at + VIEW_SPACING_S,
                    self._told_at + self._timing.member_ttl_s,
                )
                if at > now
            ]
        return max(min(times), now)

    def answered(self, rank: int, answer: HeartbeatAnswer, now: float) -> list[Action]:
        head = self.heads[rank]
        head.in_flight = False
        head.verdict = answer.verdict
        if answer.verdict in (Verdict.NOT_A_HEAD, Verdict.UNSPECIFIED):
            return self._missed(
                head,
                f"{head.endpoint} answers but is no head: its own discovery_addr does not name it",
                now,
            )
        head.answered = True
        head.heard = now
        head.failures = 0
        head.problem = answer.reason
        # Jitter keeps a thousand nodes that started together from beating together.
        head.next_at = now + self._timing.heartbeat_interval_s * self._rng.uniform(0.9, 1.0)
        if self._verdict_of_first() is Verdict.DUPLICATE:
            return self._refuse(head.problem)
        actions: list[Action] = []
        if answer.verdict is Verdict.ACCEPTED and answer.view is not None:
            actions += self._consider(answer.view, now)
        return actions + self._lead(now)

    def failed(self, rank: int, problem: str, now: float) -> list[Action]:
        head = self.heads[rank]
        head.in_flight = False
        return self._missed(head, problem, now)

    def _missed(self, head: HeadLink, problem: str, now: float) -> list[Action]:
        head.answered = False
        head.problem = problem
        pause = min(RETRY_FIRST_S * 2 ** min(head.failures, 16), self._timing.retry_max_s)
        head.failures += 1
        head.next_at = now + pause * self._rng.uniform(0.5, 1.0)
        return self._lead(now)

    def _beat(self) -> Heartbeat:
        is_head = self.own_rank is not None
        view = self.view if is_head and self.view.number > 0 else None
        return Heartbeat(self.address, self.view.number, is_head, view)

    def _verdict_of_first(self) -> Verdict:
        """Of two heads that disagree about a newcomer, the first one that answers is right."""
        for head in self.heads:
            if head.answered:
                return head.verdict
            if head.in_flight and head.failures == 0:
                break  # it may still answer
        return Verdict.UNSPECIFIED

    def _refuse(self, reason: str) -> list[Action]:
        first = not self.refused
        self.refused = reason
        actions: list[Action] = [Refused(reason)] if first else []
        if self.view.number > 0:
            self.view = View.alone(self.address)
            actions.append(ViewChanged(self.view))
        return actions

    @property
    def settled(self) -> bool:
        """Start-up need not wait any longer: in a view, or nobody answers, or refused."""
        if self.view.number > 0 or self.refused or not self.heads:
            return True
        asked = [h for rank, h in enumerate(self.heads) if rank != self.own_rank]
        tried = all(h.attempts > 0 and not h.in_flight for h in asked)
        return tried and not any(h.answered and h.verdict is Verdict.WAIT for h in asked)

    # --- what others ask of this node

    def on_heartbeat(self, beat: Heartbeat, now: float) -> tuple[HeartbeatAnswer, list[Action]]:
        actions: list[Action] = []
        if self.own_rank is None:
            if beat.is_head and beat.view is not None:
                actions += self._consider(beat.view, now)
            return self._reply(Verdict.NOT_A_HEAD, f"{self.address.node_id} is no head"), actions
        verdict, reason = self._table.heard(beat.sender, now)
        if verdict is not Verdict.ACCEPTED:
            return self._reply(verdict, reason), self._lead(now)
        self._hear_of(beat.view_number, now)
        if beat.is_head and beat.view is not None:
            actions += self._consider(beat.view, now)
        actions += self._lead(now)
        newer = self.view if self.view.number > beat.view_number else None
        return self._reply(verdict, "", newer), actions

    def _reply(self, verdict: Verdict, reason: str, view: View | None = None) -> HeartbeatAnswer:
        return HeartbeatAnswer(verdict, reason, view, self.address.node_id)

    def on_leave(self, node_id: str, incarnation: int, now: float) -> list[Action]:
        if self.own_rank is None or not self._table.left(node_id, incarnation):
            return []
        return self._lead(now)

    # --- views

    def _consider(self, view: View, now: float) -> list[Action]:
        if not 0 < view.number < VIEW_NUMBER_MAX:
            return []
        if view.number > self._seen:
            self._seen = view.number
            if self.own_rank is not None:
                self._table.seed(view.members, now)
        # A view without us is older than our last heartbeat to its maker, or says that we were
        # thrown out. Either way the next heartbeat brings one that has us; what we have serves
        # better until then than no view.
        if not view.has(self.address) or not view.supersedes(self.view):
            return []
        self.view = view
        self.refused = ""
        return [ViewChanged(view)]

    def _hear_of(self, number: int, now: float) -> None:
        if self._told < number < VIEW_NUMBER_MAX:
            self._told = number
            self._told_at = now

    def acting(self, now: float) -> bool:
        if self.own_rank is None:
            return False
        ttl_s = self._timing.member_ttl_s
        return all(now - head.heard >= ttl_s for head in self.heads[: self.own_rank])

    def _lead(self, now: float) -> list[Action]:
        """As the acting head: a new view, if the last one is not what we know."""
        if not self.acting(now) or now < self._made_at + VIEW_SPACING_S:
            return []
        known = max(self._seen, self.view.number)
        if self._told > known and now < self._told_at + self._timing.member_ttl_s:
            return []
        view = View.of(self._next_number(), self.address.node_id, self._table.living(now))
        newest = max(known, self._told)
        if view.members == self.view.members and self.view.number == newest > 0:
            return []
        self.view = view
        self.refused = ""
        self._seen = view.number
        self._made_at = now
        beat = self._beat()
        pushes = [PushView(m, beat) for m in view.members if not m.same_process(self.address)]
        return [ViewChanged(view), *pushes]

    def _next_number(self) -> int:
        assert self.own_rank is not None
        number = max(self._seen, self._told, self.view.number) + 1
        return number + (self.own_rank - number) % len(self.heads)

    # --- for status

    def silence_s(self, now: float) -> dict[str, float]:
        """As a head: seconds since each member was heard."""
        return self._table.silence_s(now) if self.own_rank is not None else {}

    @property
    def reachable_heads(self) -> int:
        return sum(rank == self.own_rank or head.answered for rank, head in enumerate(self.heads))
