"""A daemon's data plane in virtual time: FakeEngine plus gets, READs and hand-overs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from harness.fake_engine import RESIDENT, FakeEngine, Heard, digest_of, each, unpack_rows
from harness.fake_rows import ROW

from peercached.directory.placement import Node
from sim.record_log import Answer, RecordLog
from sim.signs import Signs

if TYPE_CHECKING:
    from sim.cluster import SimNode

GET_TIMEOUT_S = 2.0
READ_TIMEOUT_S = 2.0
# After a set whose owners did not all know of it at its end, they are told anew.
TELL_AGAIN_S = 1.0
PAGES_A_PART = 8


class SimEngine(FakeEngine):
    """The data plane of `node`."""

    def __init__(self, node: SimNode) -> None:
        super().__init__()
        super().stop()  # there is no event descriptor to wait for
        self.taking = True
        self.serves = False  # workers can attach
        self._node = node
        self.log = RecordLog(node, self)
        self._locations: dict[bytes, tuple[Node, int]] = {}  # location cache, which never evicts
        self.signs = Signs(node)

    def start(self) -> None:
        self.serves = True

    # --- signs of life

    def set_life_sign(
        self, view_number: int, sequence: int, is_master: bool, for_s: float, /
    ) -> None:
        self.signs.say(view_number, sequence, is_master, for_s, self.epochs_mark())

    def take_life_signs(self) -> list[Heard]:
        return self.signs.take()

    # --- events

    def post(self, name: str, *fields: Any, left_s: float = 0.0) -> int:
        ticket = super().post(name, *fields, left_s=left_s)
        if self._node.process.on_readable is not None:
            self._node.process.do(self._node.process.on_readable)
        return ticket

    def stats(self) -> dict[str, Any]:
        stats = super().stats()
        stats["pool"] |= {
            "keys": len(self.pool),
            "payload_bytes": sum(length for _, length in self.pool.values()),
            "capacity_bytes": self._node.pool_bytes,
        }
        return stats

    # --- nodes and the record log

    def drop_node(self, index: int) -> None:
        super().drop_node(index)
        self.connected.pop(index, None)
        self.log.forget(index)

    def connect_node(self, index: int, *where: Any) -> None:
        super().connect_node(index, *where)
        self.log.follow(index)

    def disconnect_node(self, index: int) -> None:
        super().disconnect_node(index)
        self.log.leave(index)

    def set_ring(self, positions: bytes, nodes: bytes, replicas: int, view_number: int = 0) -> None:
        former = self.ring
        super().set_ring(positions, nodes, replicas, view_number)
        self.log.set_ring(former)

    def begin_serving(self) -> None:
        super().begin_serving()
        self.log.open()

    def end_serving(self) -> None:
        super().end_serving()
        self.log.close()

    def stop(self) -> None:
        self.log.close()

    def tell(self, rows: bytes) -> None:
        self._node.cluster.is_true(self._node, rows)
        self.log.append(rows)

    def find_records(self, digests: bytes, timeout_ms: int) -> asyncio.Future[bytes]:  # type: ignore[override]
        """Returns a future. The simulated thread waits for it."""
        found: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        search = self.log.find_all(each(digests))
        self.log.run(search, timeout_ms / 1000, lambda rows: found.set_result(packed(rows)))
        return found

    def ask_owner(  # type: ignore[override]
        self, owner: int, digests: bytes, timeout_ms: int
    ) -> asyncio.Future[tuple[bytes, bool] | None]:
        told: asyncio.Future[tuple[bytes, bool] | None]
        told = asyncio.get_running_loop().create_future()

        def done(answer: Answer) -> None:
            told.set_result(answer and (packed(answer[0]), answer[1]))

        seconds = timeout_ms / 1000
        self.log.run(self.log.ask(owner, each(digests), seconds), seconds, done)
        return told

    def followed(self) -> list[int]:
        return self.log.table.holders()

    @property
    def final_view(self) -> int:
        return self.log.table.find(b"")[1]

    @property
    def all_have_asked(self) -> bool:
        return self.log.feed.all_have_asked

    def tell_followers(self, digests: bytes) -> int:
        return self.log.tell_now(digests)

    def followers_behind(self, position: int) -> list[tuple[int, float]]:
        return self.log.behind(position)

    def show_older(self) -> None:
        super().show_older()
        self.log.feed.forget()

    def set_taking(self, taking: bool) -> None:
        self.taking = taking

    # --- sets, evictions and hand-overs

    def publish(self, rows: bytes, done: Callable[[], object]) -> None:
        """Waits as a set does. Readers find these pages once the owners were told."""
        pages = [(row[0], row[2]) for row in unpack_rows(rows)]

        def told(well: bool) -> None:
            here = [d for d, generation in pages if self.pool.get(d, (0, 0))[0] == generation]
            if well:
                for digest in here:
                    if digest not in self.leaving:
                        self._node.cluster.shows(digest, self._node)
            elif here:
                self._node.later(TELL_AGAIN_S, lambda: self.log.wait_told(b"".join(here), told))

        def first(well: bool) -> None:
            told(well)
            done()

        self.log.wait_told(b"".join(digest for digest, _ in pages), first)

    def evict(self, digest: bytes) -> None:
        self._node.cluster.hides(digest, self._node)
        self.drop_page(digest)

    def _hide(self, digests: bytes) -> None:
        for at in range(0, len(digests), 16):
            self._node.cluster.hides(digests[at : at + 16], self._node)

    def give_away(self, records: bytes, unless_pinned: bool) -> int:
        self._hide(b"".join(self._still_here(records)))
        return super().give_away(records, unless_pinned)

    def drop_from_pool(self, digests: bytes) -> bytes:
        self._hide(digests)
        return super().drop_from_pool(digests)

    def handovers(self, bytes_max: int) -> tuple[list[tuple[bytes, int, int, int, bytes]], int]:
        del bytes_max
        digests = list(self.pool)
        some = (digests[at : at + PAGES_A_PART] for at in range(0, len(digests), PAGES_A_PART))
        return [(digest_of("ns"), 0, 0, 0, b"".join(map(self._row, part))) for part in some], 0

    def adopt(self, holder: int, *offer: Any) -> asyncio.Future[tuple[bytes, str, bool, int, int]]:
        """Returns a future. The simulated thread waits for it."""
        rows: bytes = offer[-2]
        adopted: asyncio.Future[tuple[bytes, str, bool, int, int]]
        adopted = asyncio.get_running_loop().create_future()
        if not self._node.cluster.holds(self._node.name):
            adopted.set_result((b"", "it may have no pages", True, 0, 0))
            return adopted
        here: list[bytes] = []
        node = self._node.daemon.placement.nodes.get(holder)
        left = {row[0] for row in unpack_rows(rows)}

        def end() -> None:
            self.reads_done(adopted, b"".join(here))

        def read(digest: bytes, well: bool) -> None:
            left.discard(digest)
            if well:
                here.append(digest)
            if left:
                return
            new = [digest for digest in here if digest not in self.pool]
            if new:
                self.publish(b"".join(map(self.set_page, new)), end)
            else:
                end()

        for row in unpack_rows(rows):
            if row[0] in self.pool:
                read(row[0], True)
            else:
                self._read(node, row[0], row[2], read)
        return adopted

    @staticmethod
    def reads_done(
        adopted: asyncio.Future[tuple[bytes, str, bool, int, int]], digests: bytes
    ) -> None:
        if not adopted.done():
            adopted.set_result((digests, "", False, 0, 0))

    # --- a get: the pool, other nodes, and a second try for failed reads

    def get(self, digests: list[bytes], done: Callable[[set[bytes]], None]) -> None:
        """Calls `done` with the digests of the pages that it read."""
        self._try(set(digests), set(), None, done)

    def _usable(self, node: Node | None) -> bool:
        placement = self._node.daemon.placement
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
        """`failed` maps each digest to the node where the first try failed. None means that this is
        the first try."""
        got |= {digest for digest in wanted if digest in self.pool}
        wanted = wanted - got
        cached: dict[bytes, tuple[Node, int]] = {}
        if failed is None:
            known = ((digest, self._locations.get(digest)) for digest in sorted(wanted))
            cached = {d: there for d, there in known if there and self._usable(there[0])}
        if not wanted:
            done(got)
            return

        def located(rows: list[tuple[Any, ...]]) -> None:
            self._node.cluster.check_truth(self._node, packed(rows))
            placement = self._node.daemon.placement
            chosen, own = dict[bytes, tuple[Node, int]](), set[bytes]()
            for digest, _, generation, _, _, holder, flags in rows:
                node = placement.nodes.get(holder)
                if node is placement.own and flags & RESIDENT:
                    own.add(digest)
                if node is None or not self._usable(node) or not flags & RESIDENT:
                    continue
                before = chosen.get(digest)
                if before is None or (failed is not None and failed.get(digest) is before[0]):
                    chosen[digest] = self._locations[digest] = (node, generation)
            chosen = {**cached, **chosen}
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
                # A second try helps only where a named holder failed. It would not find pages that
                # nobody holds, or that only suspects hold.
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

        misled = None if failed is None else {node.index for node in failed.values()}
        search = self.log.search(sorted(wanted), misled, cached)
        self.log.run(search, GET_TIMEOUT_S, located)

    def _read(
        self, node: Node | None, digest: bytes, generation: int, done: Callable[[bytes, bool], None]
    ) -> None:
        us, answered = self._node, list[bool]()
        if node is None or node.index not in self.connected:
            us.process.do(lambda: done(digest, False))
            return
        to, net = node.address.node_id, us.cluster.net

        def trouble(why: bytes) -> None:
            self.post("peer_trouble", node.index, node.address.incarnation, False, why)

        def late() -> None:
            if not answered:
                answered.append(False)
                trouble(b"no answer")
                done(digest, False)

        def result(well: bool) -> None:
            if not answered:
                answered.append(well)
                done(digest, well)

        def refused() -> None:
            trouble(b"refused")
            result(False)

        def asked() -> None:
            there = us.cluster.process(node.address)
            if there is None:
                if not us.cluster.dark(to):
                    net.carry(to, us.name, lambda: us.process.do(refused))
                return

            def look() -> None:
                held = there.engine.pool.get(digest)
                well = held is not None and held[0] == generation
                net.carry(to, us.name, lambda: us.process.do(lambda: result(well)))

            there.process.do(look)

        net.carry(us.name, to, asked)
        us.later(READ_TIMEOUT_S, late)


def packed(rows: list[tuple[Any, ...]]) -> bytes:
    return b"".join(ROW.pack(*row) for row in rows)
