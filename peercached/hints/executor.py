"""Carries out the actions of hints, here and at other nodes, and counts what came of them.

Actions that steer pages where they are (pin, retain, demote) are done before the answer. Actions
that move pages (fetch, prefetch, share) wait in a bounded queue, namespaces in turn: "accepted"
then means queued, unless the caller waits. Counters tell what came of them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import grpc

from peercache_client.status import Status
from peercached.component import Component, Stats
from peercached.config.quotas import split_quota
from peercached.directory.layout import SELF
from peercached.directory.placement import Node, Placement
from peercached.hints.budget import Budget
from peercached.hints.envelope import (
    ACCEPTED,
    CLIPPED,
    DISK,
    FETCH,
    FIRST_TO_GO,
    KINDS,
    MISSING,
    NODE,
    PREFETCH,
    REFUSED,
    RETAIN,
    SHARE,
    Action,
    Outcome,
    parse,
)
from peercached.hints.here import DIGESTS_MAX, Done, Here, Pages
from peercached.hints.turns import Turns
from peercached.peer.pins.pins import PART_PAGES, Pinned, Pins, Wish, answering
from peercached.peer.rpc.failure_detector import FailureDetector
from peercached.peer.rpc.failures import CallFailed, Refused, Unreachable
from peercached.peer.rpc.tasks import Tasks
from peercached.proto import peer_pb2 as pb
from peercached.service.settings import Settings

if TYPE_CHECKING:
    from peercached._native import Engine

log = logging.getLogger(__name__)

# Actions that move pages, at a time. A node reads the pages of one action at a time anyhow.
WORKERS = 4
# From the start of an action that moves pages; the rest of its pages then stays where it is.
MOVE_S = 30.0
# For one that steers pages where they are.
STEER_S = 5.0
# For a caller that waits for actions to end: less than the timeout of peercachectl.
WAIT_S = 4.0
REFUSALS_SHOWN_MAX = 16

_MOVES = frozenset({FETCH, PREFETCH, SHARE})


@dataclass(slots=True)
class _Work:
    action: Action
    ended: asyncio.Future[Outcome]


class Hints(Component):
    """On the event loop's thread, from start() to stop()."""

    def __init__(
        self,
        engine: Engine,
        placement: Placement,
        pins: Pins,
        here: Here,
        budget: Budget,
        failures: FailureDetector,
        settings: Settings,
    ) -> None:
        self._engine = engine
        self._placement = placement
        self._pins = pins
        self.here = here
        self._budget = budget
        self._failures = failures
        self._settings = settings
        self._quotas: list[str] | None = None
        self._turns: Turns[_Work] = Turns()
        self._tasks = Tasks()
        # What senders were told, by kind and outcome.
        self._answered: Counter[tuple[str, str]] = Counter()
        self._ended: Counter[tuple[str, str]] = Counter()  # of those that were queued
        self._pages: Counter[str] = Counter()  # by kind
        self._bytes: Counter[str] = Counter()
        self._malformed = 0
        self._refusals: deque[dict[str, Any]] = deque(maxlen=REFUSALS_SHOWN_MAX)

    def start(self) -> None:
        for _ in range(WORKERS):
            self._tasks.spawn(self._work())

    async def stop(self) -> None:
        await self._tasks.stop()

    async def take(
        self,
        envelope: bytes,
        *,
        wait: bool,
        namespace: str = "",
        digests: Sequence[bytes] = (),
    ) -> list[Outcome]:
        """One outcome for each action, in order. `namespace` and `digests`: as for parse(). Raises
        ValueError for a malformed envelope, or one above the bounds."""
        try:
            parsed = parse(envelope, namespace, digests)
        except ValueError:
            self._malformed += 1
            raise
        outcomes: list[Outcome] = []
        waited: dict[int, asyncio.Future[Outcome]] = {}
        for place, action in enumerate(parsed):
            outcome, ended = await self._begin(action)
            if ended is not None:
                waited[place] = ended
            outcomes.append(outcome)
        if wait and waited:
            await asyncio.wait(waited.values(), timeout=WAIT_S)
            for place, ended in waited.items():
                if ended.done() and not ended.cancelled():
                    outcomes[place] = ended.result()
                else:
                    outcomes[place].why = f"it has not ended within {WAIT_S:g} s, and goes on"
        for outcome in outcomes:
            self._answered[outcome.kind, outcome.outcome] += 1
        return outcomes

    async def _begin(
        self, action: Action | Outcome
    ) -> tuple[Outcome, asyncio.Future[Outcome] | None]:
        """Its first outcome. With a future, it is queued, and the future gets its last one."""
        if isinstance(action, Outcome):
            return self._count(action, ""), None
        ended: asyncio.Future[Outcome] | None = None
        self._tend_budget()
        try:
            if action.kind in _MOVES:
                if why := self._turns.why_full(action.namespace):
                    raise ValueError(why)
                if KINDS[action.kind] == NODE:
                    self._node(action.node)
                ended = asyncio.get_running_loop().create_future()
                self._turns.add(action.namespace, _Work(action, ended))
                outcome = action.outcome(ACCEPTED)
            else:
                outcome = await self._done(action, STEER_S)
        except ValueError as error:
            outcome = action.outcome(REFUSED, str(error))
        return self._count(outcome, action.namespace), ended

    def _tend_budget(self) -> None:
        self._budget.forget(time.monotonic())
        quotas = self._settings.config.namespace_quotas
        if quotas != self._quotas:  # at first, and after a reload
            self._quotas = quotas
            self._budget.set_tenants([split_quota(rule).pattern for rule in quotas])

    async def _work(self) -> None:
        while True:
            work = await self._turns.take()
            outcome = await self._done(work.action, MOVE_S)
            self._count(outcome, work.action.namespace)
            self._ended[outcome.kind, outcome.outcome] += 1
            if not work.ended.done():
                work.ended.set_result(outcome)

    def _count(self, outcome: Outcome, namespace: str) -> Outcome:
        self._pages[outcome.kind] += outcome.pages
        self._bytes[outcome.kind] += outcome.bytes
        if outcome.outcome in (REFUSED, CLIPPED):
            shown = self._engine.namespace_id(namespace).hex() if namespace else ""
            self._refusals.append(
                {
                    "at_s": time.time(),
                    "action_type": outcome.action_type,
                    "namespace_id": shown,
                    "outcome": outcome.outcome,
                    "why": outcome.why,
                }
            )
        return outcome

    # --- the actions

    async def _done(self, action: Action, limit_s: float) -> Outcome:
        """Its last outcome. An action that fails is refused by itself, whatever the reason."""
        try:
            return await self._do(action, time.monotonic() + limit_s)
        except ValueError as error:
            return action.outcome(REFUSED, str(error))
        except Exception as error:
            log.exception("internal error in a hint of type %s", action.kind)
            return action.outcome(REFUSED, f"{type(error).__name__}: {error}")

    async def _do(self, action: Action, until: float) -> Outcome:
        """Its last outcome. ValueError if it cannot be done."""
        pages = self._pages_of(action)
        match action.kind:
            case "pin":
                return await self._pin(action, pages, until)
            case "fetch":
                done = await self._at(self._placement.own, FETCH, pages, 0, until)
            case "retain":
                for_ms = max(round(1000 * action.seconds), 1)
                done = await self._at_holders(RETAIN, pages, for_ms, until, every=False)
            case "demote":
                what = DISK if action.to == DISK else FIRST_TO_GO
                done = await self._at_holders(what, pages, 0, until, every=True)
            case _:
                done = await self._at(self._node(action.node), FETCH, pages, 0, until)
        return _outcome_of(action, done)

    def _pages_of(self, action: Action) -> Pages:
        engine = self._engine
        digests = action.digests or [engine.digest(action.namespace, key) for key in action.keys]
        epoch = engine.namespace_epoch(engine.namespace_id(action.namespace))
        return Pages(action.namespace, epoch, list(dict.fromkeys(digests)))

    async def _pin(self, action: Action, pages: Pages, until: float) -> Outcome:
        namespace_id = self._engine.namespace_id(pages.namespace)
        wish = Wish(namespace_id, pages.epoch, pages.digests, action.seconds)
        pinned = await self._pins.pin(wish, until - time.monotonic())
        return _outcome_of(action, Done(dict(pinned.statuses), why=pinned.why))

    async def _at_holders(
        self, what: str, pages: Pages, for_ms: int, until: float, *, every: bool
    ) -> Done:
        """At the best holder of each page, or at `every` one."""
        done = Done(dict.fromkeys(pages.digests, int(Status.absent)))
        found = await self._pins.find(list(pages.digests), max(until - time.monotonic(), 0.001))
        silent = Pinned(done.statuses)
        at: defaultdict[Node, list[bytes]] = defaultdict(list)
        for digest, holders in answering(found, silent, every=False).items():
            for node, _ in holders if every else holders[:1]:
                at[node].append(digest)
        done.why |= silent.why
        each = await asyncio.gather(
            *(
                self._at(node, what, Pages(pages.namespace, pages.epoch, digests), for_ms, until)
                for node, digests in at.items()
            )
        )
        for one in each:
            for digest, status in one.statuses.items():
                if done.statuses[digest] != Status.ok:  # one holder has done it
                    done.statuses[digest] = status
            done.why |= one.why
        return done

    async def _at(self, node: Node, what: str, pages: Pages, for_ms: int, until: float) -> Done:
        if node.index == SELF:
            return await self.here.do(what, pages, for_ms, until)
        done = Done({})
        some_max = PART_PAGES if what == FETCH else DIGESTS_MAX
        for first in range(0, len(pages.digests), some_max):
            digests = pages.digests[first : first + some_max]
            statuses, why = await self._call(node, what, pages, digests, for_ms, until, done)
            done.take(digests, statuses, why)
            if Status.no_space in statuses and what == FETCH:
                rest = pages.digests[first + some_max :]
                done.take(rest, bytes([Status.no_space] * len(rest)))
                break
        return done

    async def _call(
        self,
        node: Node,
        what: str,
        pages: Pages,
        digests: Sequence[bytes],
        for_ms: int,
        until: float,
        done: Done,
    ) -> tuple[bytes, str]:
        left_s = max(until - time.monotonic(), 0.001)
        request = pb.HintRequest(
            what=what,
            namespace=pages.namespace,
            epoch=pages.epoch,
            digests=b"".join(digests),
            for_ms=for_ms,
            timeout_ms=max(round(800 * left_s), 1),
        )
        name = node.address.node_id
        try:
            reply = await self._failures.call(node, "Hint", request, left_s, may_be_slow=True)
        except Unreachable as error:
            return bytes([Status.suspect] * len(digests)), str(error)
        except CallFailed as error:
            why = str(error)
            if isinstance(error, Refused) and error.code is grpc.StatusCode.UNIMPLEMENTED:
                why = f"{name} runs an older version, which takes no hints"
            return bytes([Status.error] * len(digests)), why
        if len(reply.statuses) != len(digests):
            return bytes([Status.error] * len(digests)), f"{name} gave a malformed answer"
        done.brought_bytes += reply.bytes
        return bytes(reply.statuses), f"{name}: {reply.why_not}" if reply.why_not else ""

    def _node(self, node_id: str) -> Node:
        """ValueError if it cannot have pages now."""
        for node in self._placement.nodes.values():
            if node.address.node_id == node_id:
                if node.leaving:
                    raise ValueError(f"{node_id} drains, so it takes no pages: name another node")
                if node.suspect:
                    raise ValueError(f"{node_id} does not answer now (suspect): name another node")
                return node
        known = ", ".join(sorted(node.address.node_id for node in self._placement.nodes.values()))
        raise ValueError(f"there is no member {node_id!r:.80}: there are {known:.500}")

    # --- the report

    def sections(self, stats: Stats) -> dict[str, Any]:
        pool = stats.get("pool", {})
        total = self.here.bytes_max
        return {
            "hints": {
                "answered": _table(self._answered),
                "ended": _table(self._ended),
                "waiting": len(self._turns),
                "malformed": self._malformed,
                "pages": dict(self._pages),
                "bytes": dict(self._bytes),
                "bytes_max": total,
                "unused_pages": pool.get("hinted_keys", 0),
                "unused_bytes": pool.get("hinted_bytes", 0),
                "retained_pages": pool.get("retained_keys", 0),
                "retained_bytes": pool.get("retained_bytes", 0),
                "namespaces": [
                    {
                        "id": self._engine.namespace_id(one.namespace),
                        # A namespace's name may contain a tenant's salt.
                        "tenant": one.tenant if one.tenant != one.namespace else "",
                        "part_bytes": one.part_bytes,
                        "left_bytes": one.left_bytes,
                    }
                    for one in self._budget.spenders(total, time.monotonic())
                ],
                "refusals": list(self._refusals),
            }
        }


def _table(counts: Counter[tuple[str, str]]) -> list[dict[str, Any]]:
    return [
        {"action": kind, "outcome": outcome, "count": count}
        for (kind, outcome), count in sorted(counts.items())
    ]


def _outcome_of(action: Action, done: Done) -> Outcome:
    """`why` also tells of pages that are nowhere."""
    counts = Counter(done.statuses.values())
    asked, good = len(done.statuses), counts[Status.ok]
    why = list(done.why)
    absent = counts[Status.absent]
    if absent:
        why.append(
            f"{absent} of {asked} pages are nowhere" if absent < asked else "no node has them"
        )
    limited = asked - good - absent
    if limited:
        outcome = CLIPPED if good else REFUSED
    else:
        outcome = ACCEPTED if good else MISSING
    return action.outcome(outcome, "; ".join(why)[:1000], good, done.brought_bytes)
