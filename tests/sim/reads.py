"""Lookups and READs in virtual time: what peer/lookups.py and Engine::get do around the daemon's
Lookup."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from peercached.directory.layout import DIGEST_BYTES
from peercached.directory.lookup import Ask, Lookup, LookupCounters
from peercached.directory.placement import Node
from sim.fake_engine import RESIDENT, FakeNative, unpack_rows

if TYPE_CHECKING:
    from sim.cluster import SimNode

RPC_TIMEOUT_S = 2.0
READ_TIMEOUT_S = 2.0


class _Search:
    """One lookup with its calls."""

    def __init__(self, lookup: Lookup, deadline: float, done: Callable[[bytes], None]) -> None:
        self.lookup = lookup
        self.deadline = deadline
        self.done = done
        self.calls: dict[_Call, None] = {}  # in the order of their beginning
        self.over = False


@dataclass(eq=False)
class _Call:
    search: _Search
    ask: Ask
    node: Node
    began: float
    overdue: bool = False
    ended: bool = False


class SimReads:
    def __init__(self, node: SimNode) -> None:
        self._node = node
        # In the order of their beginning: a set's would be that of addresses in memory, and no run
        # like another.
        self._calls: dict[Node, dict[_Call, None]] = {}
        self._locations: dict[bytes, tuple[Node, int]] = {}  # the location cache, never too small
        self.counters = LookupCounters()

    def _lookup(self, digests: bytes) -> Lookup:
        us = self._node
        engine, native = cast(Any, us.engine), cast(Any, FakeNative)
        return Lookup(engine, native, us.placement, us.side, self.counters, digests, us.clock)

    # --- lookups over the network

    def find(self, digests: bytes, left_s: float, done: Callable[[bytes], None]) -> None:
        """`done` gets the records, all there are or what was found in time."""
        us = self._node
        search = _Search(self._lookup(digests), us.clock + left_s, done)
        us.later(left_s, lambda: self._over(search))
        self._proceed(search, search.lookup.start())

    def _proceed(self, search: _Search, asks: list[Ask]) -> None:
        while asks:
            ask = asks.pop()
            if not self._start(search, ask):
                asks += search.lookup.failed(ask)
        if search.lookup.settled:
            self._over(search)

    def _over(self, search: _Search) -> None:
        if search.over:
            return
        search.over = True
        for call in search.calls:
            self._overdue(call)
        search.done(search.lookup.rows())

    def _start(self, search: _Search, ask: Ask) -> bool:
        us = self._node
        node = us.placement.nodes.get(ask.owner)
        if node is None or us.clock >= search.deadline:
            return False
        call = _Call(search, ask, node, us.clock)
        search.calls[call] = None
        self._calls.setdefault(node, {})[call] = None
        count = len(ask.digests) // DIGEST_BYTES
        us.later(node.patience.delay_s(count), lambda: self._due(call))
        us.later(RPC_TIMEOUT_S, lambda: self._failed(call))
        number, to = us.placement.view.number, node.address.node_id

        def asked() -> None:
            there = us.cluster.process(node.address)
            if there is None:
                if not us.cluster.dark(to):
                    us.net.carry(to, us.name, lambda: us.do(lambda: self._failed(call)))
                return
            there.do(lambda: answer(cast("SimNode", there)))

        def answer(there: SimNode) -> None:
            table, rows, final, _ = there.service.lookup(ask.digests, number)
            us.net.carry(
                to, us.name, lambda: us.do(lambda: self._answered(call, rows, table, final))
            )

        us.net.carry(us.name, to, asked)
        return True

    def _overdue(self, call: _Call) -> None:
        if not (call.overdue or call.ended):
            call.overdue = True
            call.node.overdue += 1

    def _due(self, call: _Call) -> None:
        if call.overdue or call.ended:
            return
        self._overdue(call)
        if not call.search.over:
            self._proceed(call.search, call.search.lookup.overdue(call.ask))

    def _end(self, call: _Call) -> bool:
        if call.ended:
            return False
        call.ended = True
        call.search.calls.pop(call, None)
        self._calls[call.node].pop(call, None)
        call.node.overdue -= call.overdue
        return True

    def _failed(self, call: _Call) -> None:
        if self._end(call):
            self._node.suspect(call.node)
            self._give_up(call)

    def _give_up(self, call: _Call) -> None:
        if not call.search.over:
            self._proceed(call.search, call.search.lookup.failed(call.ask))

    def _answered(
        self, call: _Call, rows: bytes, table: list[tuple[str, int]], final: bool
    ) -> None:
        if not self._end(call):
            return
        count = len(call.ask.digests) // DIGEST_BYTES
        call.node.patience.answered(self._node.clock - call.began, count)
        if not call.search.over:
            lookup = call.search.lookup
            self._proceed(call.search, lookup.answered(call.ask, rows, table, final))

    def stop_waiting_for(self, node: Node) -> None:
        for call in list(self._calls.get(node, ())):
            if self._end(call):
                self._give_up(call)

    # --- a whole get: the pool, others, and once more for what led nowhere

    def get(self, digests: list[bytes], done: Callable[[set[bytes]], None]) -> None:
        """`done` gets the digests of the pages that were read."""
        self._try(set(digests), set(), None, done)

    def _usable(self, node: Node | None) -> bool:
        placement = self._node.placement
        return (
            node is not None
            and node is not placement.own
            and placement.nodes.get(node.index) is node
            and not node.suspect
        )

    def _try(
        self,
        wanted: set[bytes],
        got: set[bytes],
        failed: dict[bytes, Node] | None,
        done: Callable[[set[bytes]], None],
    ) -> None:
        """`failed`: at whom the first try failed; None: this is the first."""
        got |= {digest for digest in wanted if digest in self._node.engine.pool}
        wanted = wanted - got
        cached: dict[bytes, tuple[Node, int]] = {}
        if failed is None:
            known = ((digest, self._locations.get(digest)) for digest in sorted(wanted))
            cached = {d: there for d, there in known if there and self._usable(there[0])}
        if not wanted:
            done(got)
            return

        def located(rows: bytes) -> None:
            self._node.cluster.check_truth(self._node, rows)
            chosen, own = dict(cached), set[bytes]()
            for digest, _, generation, _, _, holder, flags in unpack_rows(rows):
                node = self._node.placement.nodes.get(holder)
                if node is self._node.placement.own and flags & RESIDENT:
                    own.add(digest)
                if node is None or not self._usable(node) or not flags & RESIDENT:
                    continue
                before = chosen.get(digest)
                if before is None or (failed is not None and failed.get(digest) is before[0]):
                    chosen[digest] = self._locations[digest] = (node, generation)
            left = dict(chosen)

            def read(digest: bytes, well: bool) -> None:
                if left.pop(digest, None) is None:
                    return
                if well:
                    got.add(digest)
                else:
                    self._locations.pop(digest, None)
                if not left:
                    over()

            def over() -> None:
                # What nobody has, and what only suspects have, is not worth a second try.
                led_nowhere = {d for d in wanted - got if d in chosen or d in own}
                if failed is None and led_nowhere:
                    tried = {d: chosen[d][0] for d in led_nowhere if d in chosen}
                    self._try(led_nowhere, got, tried, done)
                else:
                    done(got)

            if not left:
                over()
            for digest, (node, generation) in chosen.items():
                self._read(node, digest, generation, read)

        if order := sorted(wanted - cached.keys()):
            self.find(b"".join(order), RPC_TIMEOUT_S, located)
        else:
            located(b"")

    def _read(
        self, node: Node, digest: bytes, generation: int, done: Callable[[bytes, bool], None]
    ) -> None:
        us, to = self._node, node.address.node_id

        def late() -> None:
            if not answered:
                us.suspect(node)
                done(digest, False)

        answered: list[bool] = []

        def result(well: bool) -> None:
            answered.append(well)
            done(digest, well)

        def refused() -> None:
            us.suspect(node)
            result(False)

        def asked() -> None:
            process = us.cluster.process(node.address)
            if process is None:
                if not us.cluster.dark(to):
                    us.net.carry(to, us.name, lambda: us.do(refused))
                return
            there = cast("SimNode", process)

            def look() -> None:
                held = there.engine.pool.get(digest)
                well = held is not None and held[0] == generation
                us.net.carry(to, us.name, lambda: us.do(lambda: result(well)))

            there.do(look)

        us.net.carry(us.name, to, asked)
        us.later(READ_TIMEOUT_S, late)

    # --- at this very moment

    def find_now(self, digests: bytes) -> bytes:
        """The records as a lookup finds them that takes no time at all."""
        us = self._node
        lookup = self._lookup(digests)
        asks = lookup.start()
        while asks:
            ask = asks.pop()
            there = us.cluster.process(us.placement.nodes[ask.owner].address)
            if there is None:
                asks += lookup.failed(ask)
                continue
            number = us.placement.view.number
            table, rows, final, _ = cast("SimNode", there).service.lookup(ask.digests, number)
            asks += lookup.answered(ask, rows, table, final)
        assert lookup.outstanding == 0
        return lookup.rows()
