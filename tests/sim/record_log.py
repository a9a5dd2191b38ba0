"""The record log of one simulated node, in virtual time: it follows other nodes
(native/transfer/tcp/follower.cc), answers its followers (engine/records/record_feed.cc), waits for
owners (engine/records/publisher.cc) and looks records up (engine/records/locator.cc). Logs,
positions, leases and tables are the native ones.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from functools import partial
from typing import Any, Protocol

from harness.fake_engine import each
from harness.fake_rows import unpack_rows

from peercached import _native
from sim.loop import Process
from sim.net import Net, Work

# As in native/: see the files above, engine/records/nodes.h and engine/records/directory.cc.
GATHER_S = 0.02
LOOK_AGAIN_S = 0.02
FRAME_PATIENCE_S, EACH_DIGEST_S, OTHERS_PATIENCE_S, SLOW_S = 0.1, 2e-6, 1.0, 1.0
FOLLOW_WAIT_S, FOLLOW_PATIENCE_S, ASK_AGAIN_S, ROOM_AGAIN_S = 2.0, 5.0, 1.0, 60.0
FORMER_S = 30.0
PATIENCE_S = 1.0
# Small, so that followers often fall behind the log, and pushes take several rounds.
CHANGES_MAX, PUSHED_MAX = 64, 16
RECORDS_MAX = 1 << 16
# Longest time of a scan, and delay of the janitor.
SCAN_S, JANITOR_S = 0.1, 0.05
# Leases allow for clocks that differ by 1% (native/directory/feed.cc). Those of Process may differ
# by 6%.
DRIFT_SHARE = 1 / 8

Row = tuple[Any, ...]
Located = tuple[list[tuple[int, Row]], bool]  # rows by incarnation of their holder; whether final
Answer = tuple[list[Row], bool] | None  # rows by our index of the holder
Asks = list[tuple[int, list[bytes]]]  # (owner, digests)
# Yields whom to ask, and for how many seconds; gets their answers; returns rows.
Search = Generator[tuple[Asks, float], list[Answer], list[Row]]
Reply = Callable[[Any], None]


class Hosts(Protocol):
    net: Net

    def log_of(self, node_id: str, incarnation: int) -> RecordLog | None:
        """Of a process that lives, even if it hangs."""

    def dark(self, name: str) -> bool: ...

    def holds(self, name: str) -> bool:
        """Whether this node may have pages. The others are not followed."""


class Host(Protocol):
    name: str
    process: Process

    @property
    def incarnation(self) -> int: ...

    @property
    def hosts(self) -> Hosts: ...

    def later(self, seconds: float, work: Work) -> None: ...


class RecordLog:
    """`engine`: a FakeEngine. `stores_all`: else it stores the records that it owns."""

    def __init__(
        self, host: Host, engine: Any, records_max: int = RECORDS_MAX, stores_all: bool = True
    ) -> None:
        self.engine = engine
        self._stores_all = stores_all
        self.host = host
        self.feed = _native.Feed(CHANGES_MAX)
        self.table = _native.RecordTable(records_max, self.clock)
        self.lanes: dict[int, _Lane] = {}
        self.slow_until: dict[int, float] = {}
        self.pushing: dict[int, object] = {}
        self._former: Any = None
        self._former_until = 0.0
        self._asked: dict[int, tuple[_native.Question, Reply]] = {}  # questions that wait, by asker
        self._told_end = 1
        self._waits: dict[_Wait, None] = {}
        self._ringing = self._watched = self._open = self._closed = False

    def clock(self) -> float:
        process = self.host.process
        return process.skew_s + (1 + (process.drift - 1) * DRIFT_SHARE) * self.host.hosts.net.now

    # --- calls between nodes

    def call(
        self,
        to: tuple[str, int],
        work: Callable[[RecordLog, Reply], None],
        done: Reply,
        may_be_lost: bool = False,
    ) -> None:
        """Runs `work` there, and `done` here with the reply. None: nobody is there."""
        hosts, us, name = self.host.hosts, self.host, to[0]
        send = hosts.net.send if may_be_lost else hosts.net.carry

        def reply(answer: Any) -> None:
            send(name, us.name, lambda: us.process.do(lambda: done(answer)))

        def arrived() -> None:
            there = hosts.log_of(*to)
            if there is not None:
                there.host.process.do(lambda: work(there, reply))
            elif not hosts.dark(name):
                reply(None)

        send(us.name, name, arrived)

    # --- nodes and views

    def follow(self, index: int) -> None:
        if index not in self.lanes and self.host.hosts.holds(self.engine.nodes[index][0]):
            self.lanes[index] = _Lane(self, index)
            self.lanes[index].ask()

    def leave(self, index: int) -> None:
        self.lanes.pop(index, None)

    def forget(self, index: int) -> None:
        self.leave(index)
        self.slow_until.pop(index, None)
        self.table.forget(index)
        self.sweep_soon()

    def set_ring(self, former: Any) -> None:
        """`former`: the ring before."""
        engine, now = self.engine, self.clock()
        self._former, self._former_until = former, now + FORMER_S
        nodes: dict[int, tuple[str, int]] = engine.nodes
        if not self._stores_all:
            self.table.store_only(self.owns, engine.view_number)
        self.table.set_view(
            engine.view_number, [i for i, (name, _) in nodes.items() if self.host.hosts.holds(name)]
        )
        self.feed.set_view(engine.view_number, [known for _, known in nodes.values()], now)
        self._tell_news()

    def is_readable(self, index: int) -> bool:
        """Handshakes go only to nodes that may have pages, so the others need none."""
        engine = self.engine
        if index not in engine.nodes or index in engine.suspected or index in engine.owing:
            return False
        return index in engine.connected or not self.host.hosts.holds(engine.nodes[index][0])

    def is_slow(self, index: int) -> bool:
        return self.clock() < self.slow_until.get(index, 0.0)

    def sweep_soon(self) -> None:
        self.host.later(JANITOR_S, self._sweep)

    def _sweep(self) -> None:
        if self.table.sweep(4096):
            self.sweep_soon()

    # --- as a holder

    def open(self) -> None:
        self._open = True
        self._tell_news()

    def close(self) -> None:
        self._closed = True
        for asker, (question, _) in list(self._asked.items()):
            self._answer(asker, question)

    def append(self, rows: bytes) -> None:
        self.feed.append(rows)
        if not self._ringing:
            self._ringing = True
            self.host.later(GATHER_S, self._ring)

    def _ring(self) -> None:
        self._ringing = False
        self._told_end = self.feed.end
        self._tell_news()

    def asked(self, asker: int, question: _native.Question, reply: Reply) -> None:
        if not self.feed.asked(asker, question):
            reply(None)
            return
        self.moved()
        self._asked[asker] = (question, reply)
        self.host.later(FOLLOW_WAIT_S, partial(self._answer, asker, question))
        self._tell_news(asker)

    def _tell_news(self, *askers: int) -> None:
        """Without `askers`, to all."""
        for asker in askers or list(self._asked):
            question, _ = self._asked[asker]
            if self._closed or (self._open and self.feed.has_news(asker, question, self._told_end)):
                self._answer(asker, question)

    def _answer(self, asker: int, question: _native.Question) -> None:
        waiting, reply = self._asked.get(asker, (None, None))
        if waiting != question or reply is None:
            return
        del self._asked[asker]
        works = self._open and not self._closed
        wanted = self._wanted_by(asker, question[3])
        part = self.feed.answer(asker, question, self.clock(), wanted) if works else None
        if part is not None and (part[3] or question[4]):
            self._scan(part, wanted, reply)
        else:
            reply(part and [part])

    def _wanted_by(self, asker: int, ring: int) -> Callable[[bytes], bool] | None:
        """As Directory::wanted_by(). Here rings have the number of their view."""
        if ring == 0 or ring != self.engine.view_number:
            return None
        index = self.index_of(asker)
        if index is None:
            return None
        return lambda digest: index in self.engine.owners(digest)

    def _scan(
        self, last: _native.FeedPart, wanted: Callable[[bytes], bool] | None, reply: Reply
    ) -> None:
        """Looks at some pages now and at the rest later. The pool changes meanwhile."""
        rng, pool = self.host.hosts.net.rng, self.engine.pool
        first = rng.sample(sorted(pool), len(pool) // 2)

        def rows_of(digests: Iterable[bytes]) -> bytes:
            return b"".join(self.engine._row(d) for d in digests if wanted is None or wanted(d))

        rows = rows_of(first)

        def end() -> None:
            rest = rows_of(digest for digest in pool if digest not in first)
            begun = (rows, 0, 0, last[3], True, 0)
            reply([begun, (rest, 0, 0, False, True, 0), (*last[:3], False, *last[4:])])

        self.host.later(rng.uniform(0.0, SCAN_S), end)

    # --- sets and removals wait

    def wait_told(self, digests: bytes, done: Callable[[bool], None]) -> None:
        _Wait(self, digests, done)

    def tell_now(self, digests: bytes) -> int:
        position = self.feed.last_of(digests, self.clock()) if digests else self.feed.end
        self._told_end = max(self._told_end, position)
        self._tell_news()
        return position

    def behind(self, position: int) -> list[tuple[int, float]]:
        self._watched, now = True, self.clock()
        return [(who, until - now) for who, until in self.feed.behind(position, now)]

    def moved(self) -> None:
        for wait in list(self._waits):
            wait.look()
        if self._watched:
            self._watched = False
            self.engine.post("follower_moved")

    def begin_wait(self, wait: _Wait) -> None:
        self._waits[wait] = None

    def end_wait(self, wait: _Wait) -> None:
        self._waits.pop(wait, None)

    def push(self, owner: int) -> None:
        """Unless a push to this owner is under way."""
        if owner in self.pushing or not self.is_readable(owner) or self.is_slow(owner):
            return
        to: tuple[str, int] = self.engine.nodes[owner]
        wanted = self._wanted_by(to[1], self.feed.ring_of(to[1]))
        part = self.feed.push(to[1], PUSHED_MAX, wanted)
        if part is None or not part[0]:
            return
        token = self.pushing[owner] = object()

        def taken(position: int | None) -> None:
            if self.pushing.get(owner) is token:
                del self.pushing[owner]
                if position:
                    self.feed.stands(to[1], position)
                self.moved()

        def late() -> None:
            if self.pushing.get(owner) is token:
                del self.pushing[owner]
                self.slow_until[owner] = self.clock() + SLOW_S

        us = self.host.incarnation
        self.call(to, lambda there, reply: reply(there.pushed(us, part)), taken, may_be_lost=True)
        self.host.later(FRAME_PATIENCE_S, late)

    # --- as an owner

    def index_of(self, incarnation: int) -> int | None:
        nodes = self.engine.nodes.items()
        return next((index for index, (_, known) in nodes if known == incarnation), None)

    def pushed(self, holder: int, part: _native.FeedPart) -> int:
        index = self.index_of(holder)
        return 0 if index is None else self.table.push(index, part)

    def lookup(self, digests: list[bytes], view_number: int) -> Located:
        packed = b"".join(digests)
        rows, final_view = self.table.find(packed)
        is_final = final_view == view_number != 0 and all(map(self.owns, digests))
        named = [(self.host.incarnation, row) for row in self._own_rows(packed)]
        named += [(self.engine.nodes[row[5]][1], row) for row in unpack_rows(rows)]
        return named, is_final

    def _own_rows(self, digests: bytes) -> list[Row]:
        engine = self.engine
        rows = unpack_rows(engine.local_rows(digests)) if engine.serving else []
        return [row for row in rows if row[0] not in engine.removing]

    def owns(self, digest: bytes) -> bool:
        return self.engine.ring is not None and 0 in self.engine.owners(digest)

    # --- searches

    def search(
        self,
        digests: list[bytes],
        failed: set[int] | None = None,
        cached: Iterable[bytes] = (),
    ) -> Search:
        """Rows of these digests at other nodes. `failed`: holders with records that have just
        misled us; None: nobody has. `cached`: found elsewhere, if we have no records."""
        engine, rows = self.engine, list[Row]()
        found, final_view = self.table.find(b"".join(digests))
        suspects = set[bytes]()

        def add(some: Iterable[Row]) -> None:
            rows.extend(some)
            suspects.update(row[0] for row in rows if row[5] in engine.suspected)

        misled = failed or set()
        known = (row for row in unpack_rows(found) if row[0] not in engine.removing)
        add(row for row in known if row[5] not in misled)
        settled = set(cached)
        if failed is None and final_view == engine.view_number != 0:
            settled |= {d for d in digests if d not in suspects and self.owns(d)}

        def open_ones() -> list[bytes]:
            there = {row[0] for row in rows if self._is_usable(row[5])}
            return [d for d in digests if d not in there and d not in settled]

        asked = set[int]()
        for of_others in (False, True):
            is_owner = partial(self._may_be_asked, asked, of_others)
            asks = self._candidates(open_ones(), is_owner, of_others)
            if not of_others:
                asks = list(_cover(asks, misled))
            if not asks:
                continue
            patience_s = OTHERS_PATIENCE_S if of_others else FRAME_PATIENCE_S
            answers = yield asks, patience_s
            for (owner, part), answer in zip(asks, answers, strict=True):
                if answer is not None:
                    asked.add(owner)
                    add(answer[0])
                    settled.update(part if answer[1] else ())
        return rows

    def _is_usable(self, index: int) -> bool:
        engine = self.engine
        is_other = index in engine.nodes  # not ourselves, nor a node that has left
        return is_other and index not in engine.suspected and index not in engine.owing

    def _may_be_asked(self, asked: set[int], is_late: bool, owner: int) -> bool:
        if owner == 0 or owner in asked or not self.is_readable(owner):
            return False
        return is_late or not self.is_slow(owner)

    def _candidates(
        self, digests: list[bytes], may_be_asked: Callable[[int], bool], with_former: bool
    ) -> Asks:
        """All digests that each owner could be asked for."""
        by_owner: dict[int, list[bytes]] = {}
        rings = [self.engine.ring]
        if with_former and self.clock() < self._former_until:
            rings.append(self._former)
        for ring in rings:
            of_ring: dict[int, list[bytes]] = {}
            for digest in digests if ring is not None else ():
                for owner in ring.owners(digest):
                    if may_be_asked(owner):
                        of_ring.setdefault(owner, []).append(digest)
            by_owner |= {owner: part for owner, part in of_ring.items() if owner not in by_owner}
        return list(by_owner.items())

    def find_all(self, digests: list[bytes]) -> Search:
        rows = unpack_rows(self.table.find_all(b"".join(digests)))
        there = {row[0] for row in rows}
        more = yield from self.search([d for d in digests if d not in there], failed=set())
        return rows + [row for row in more if self._is_usable(row[5])]

    def ask(self, owner: int, digests: list[bytes], seconds: float) -> Generator[Any, Any, Answer]:
        if owner == 0:
            return self._ours(self.lookup(digests, self.engine.view_number))
        answers: list[Answer] = yield [(owner, digests)], seconds
        return answers[0]

    def _ours(self, located: Located | None) -> Answer:
        if located is None:
            return None
        index = {known: at for at, (_, known) in self.engine.nodes.items()}
        index[self.host.incarnation] = 0
        named = [(*row[:5], index[by], row[6]) for by, row in located[0] if by in index]
        return named, located[1]

    def run_now(self, search: Generator[Any, Any, Any]) -> Any:
        """The result of the search if messages took no time, and only cuts lost any."""
        us, hosts = self.host.name, self.host.hosts
        answers: Any = None
        while True:
            try:
                asks, _ = search.send(answers)
            except StopIteration as end:
                return end.value
            answers = []
            for owner, digests in asks:
                name, incarnation = self.engine.nodes[owner]
                is_cut = hosts.net.cuts & {(us, name), (name, us)}
                there = None if is_cut else hosts.log_of(name, incarnation)
                answers.append(there and self._ours(there.lookup(digests, self.engine.view_number)))

    def run(
        self, search: Generator[Any, Any, Any], seconds: float, done: Callable[[Any], None]
    ) -> None:
        until = self.clock() + seconds

        def go_on(answers: Any) -> None:
            try:
                asks, patience_s = search.send(answers)
            except StopIteration as end:
                done(end.value)
                return
            late_s = patience_s + EACH_DIGEST_S * sum(len(part) for _, part in asks)
            self._ask_all(asks, min(late_s, until - self.clock()), go_on)

        go_on(None)

    def _ask_all(self, asks: Asks, seconds: float, done: Callable[[list[Answer]], None]) -> None:
        answers: list[Answer] = [None] * len(asks)
        left = set(range(len(asks)))
        view_number = self.engine.view_number

        def answered(at: int, located: Located | None) -> None:
            if at not in left:
                return
            left.discard(at)
            answers[at] = self._ours(located)
            if not left:
                done(answers)

        def late() -> None:
            if left:
                for at in left:
                    self.slow_until[asks[at][0]] = self.clock() + SLOW_S
                left.clear()
                done(answers)

        def look(digests: list[bytes], there: RecordLog, reply: Reply) -> None:
            reply(there.lookup(digests, view_number))

        for at, (owner, digests) in enumerate(asks):
            to: tuple[str, int] = self.engine.nodes[owner]
            self.call(to, partial(look, digests), partial(answered, at))
        self.host.later(max(seconds, 0.0), late)


def _cover(asks: Asks, reluctant: set[int]) -> Iterator[tuple[int, list[bytes]]]:
    """Few owners that together know all digests."""
    while asks:
        owner, part = max(asks, key=lambda ask: (ask[0] not in reluctant, len(ask[1])))
        yield owner, part
        taken = set(part)
        asks = [(other, [d for d in rest if d not in taken]) for other, rest in asks]
        asks = [ask for ask in asks if ask[1]]


class _Lane:
    """The channel to one holder."""

    def __init__(self, log: RecordLog, index: int) -> None:
        self._log = log
        self._index = index
        self._to: tuple[str, int] = log.engine.nodes[index]
        self._number = 0  # of the question under way

    def ask(self) -> None:
        log, us = self._log, self._log.host.incarnation
        if log.lanes.get(self._index) is not self:
            return
        question = log.table.ask(self._index, log.clock())
        number = self._number = question[0]
        log.call(
            self._to,
            lambda there, reply: there.asked(us, question, reply),
            lambda parts: self._take(number, parts),
        )
        log.host.later(FOLLOW_WAIT_S + FOLLOW_PATIENCE_S, lambda: self._lose(number))

    def _take(self, number: int, parts: list[_native.FeedPart] | None) -> None:
        log = self._log
        if number != self._number or log.lanes.get(self._index) is not self:
            return
        if parts is None:
            self._lose(number)
            return
        for part in parts:
            if not log.table.take(self._index, part):
                self._lose(number)
                return
        if parts[0][3]:
            log.sweep_soon()
        self.ask()

    def _lose(self, number: int) -> None:
        log = self._log
        if number == self._number and log.lanes.get(self._index) is self:
            self._number = 0
            log.table.is_lost(self._index)
            # Without this, nobody but a master would notice that a node has died.
            why = b"its records cannot be followed"
            log.engine.post("peer_trouble", self._index, self._to[1], False, why)
            log.host.later(ASK_AGAIN_S, self.ask)


class _Wait:
    """A set that waits for owners."""

    def __init__(self, log: RecordLog, digests: bytes, done: Callable[[bool], None]) -> None:
        self._log, self._done = log, done
        self._until = log.clock() + PATIENCE_S
        self._position = log.feed.last_of(digests, log.clock())
        engine = log.engine
        of_all = each(digests) if engine.ring is not None else ()
        owners = {owner for digest in of_all for owner in engine.owners(digest)} - {0}
        self._owners = sorted(owners)
        self._all = True
        log.begin_wait(self)
        self._tick()

    def _tick(self) -> None:
        if self.look():
            self._log.host.later(LOOK_AGAIN_S, self._tick)

    def look(self) -> bool:
        """Whether it still waits."""
        log = self._log
        if self not in log._waits:
            return False
        nodes, suspected = log.engine.nodes, log.engine.suspected
        for owner in list(self._owners):
            stands = owner in nodes and log.feed.stands_at(nodes[owner][1], self._position)
            if stands or owner not in nodes or owner in suspected:
                self._owners.remove(owner)
                self._all = self._all and stands
        now = log.clock()
        if not self._owners and not log.feed.behind(self._position, now, True):
            self._end(self._all and log.feed.all_have_asked)
            return False
        if now >= self._until:
            for owner in self._owners:
                why = b"it did not take records in time"
                log.engine.post("peer_trouble", owner, nodes[owner][1], False, why)
            self._end(False)
            return False
        for owner in self._owners:
            log.push(owner)
        return True

    def _end(self, told: bool) -> None:
        self._log.end_wait(self)
        self._done(told)
