"""Holders' logs and their followers alone, under random faults: no daemons and no membership, so
thousands of stories take minutes. The protocol and its rules are in docs/directory.md.

Views come one after the other. Each member takes them at a time of its own and may leave some out.
The judge knows which sets and removals were told, and asks all readers again and again.
"""

from __future__ import annotations

import random
from collections import deque
from functools import partial
from typing import NamedTuple

from harness.fake_engine import FakeEngine, build_ring, digest_of, each, unpack_rows

from sim.loop import InProcess, Loop, Process
from sim.net import Net, Work
from sim.record_log import RecordLog, Row, Search

STEPS = 60
REPLICAS = 2
PAGES = 12  # of each node
VIEW_S = 3.0  # longest time until a member takes a view
OFF_S = 12.0  # longest time out of the views, or in a hang
LOOK_S = 0.05  # the judge's pauses
# All leases of earlier faults are over, and all channels are back.
QUIET_S = 25.0
SMALL_TABLE = 40


class View(NamedTuple):
    number: int
    members: tuple[tuple[str, int], ...]


class Holder(FakeEngine):
    """A pool without pages' contents. `told`: generations of pages, if their set was told."""

    def __init__(self, node: LogNode, records_max: int, stores_all: bool) -> None:
        super().__init__()
        super().stop()
        self.told: dict[bytes, int] = {}
        self.log = RecordLog(node, self, records_max, stores_all)

    def tell(self, rows: bytes) -> None:
        self.log.append(rows)

    def drop_page(self, digest: bytes) -> bytes:
        self.told.pop(digest, None)
        return super().drop_page(digest)


class LogNode(InProcess):
    """One start of a node."""

    def __init__(self, logs: Logs, name: str, incarnation: int) -> None:
        rng = logs.rng
        self.hosts, self.name, self.incarnation = logs, name, incarnation
        self.process = Process(logs.loop, name, rng.uniform(-1e3, 1e3), rng.uniform(0.97, 1.03))
        self.view = View(0, ())
        records_max = SMALL_TABLE if rng.random() < 0.1 else 1 << 16
        self.engine = Holder(self, records_max, logs.stores_all)
        self.log = self.engine.log
        self.engine.begin_serving()
        self.log.open()

    @property
    def address(self) -> tuple[str, int]:
        return self.name, self.incarnation

    def later(self, seconds: float, work: Work) -> None:
        after_s = max(seconds, 0.0) / self.process.drift
        self.hosts.net.after(after_s, lambda: self.process.do(work))

    def take(self, view: View) -> None:
        if view.number <= self.view.number or self.address not in view.members:
            return
        self.view, engine, former = view, self.engine, self.engine.ring
        others = [member for member in view.members if member != self.address]
        known = {member: index for index, member in engine.nodes.items()}
        for member in others:
            index = known.get(member)
            if index is None:
                index = engine.add_node(*member)
                # The handshake may take a while.
                self.later(self.hosts.rng.choice([0.0, 0.5]), partial(self._connect, index, member))
        for member, index in known.items():
            if member not in others:
                self._drop(index)
        indices = {name: index for index, (name, _) in engine.nodes.items()}
        engine.set_ring(*build_ring({**indices, self.name: 0}), REPLICAS, view.number)
        self.log.set_ring(former)

    def _connect(self, index: int, member: tuple[str, int]) -> None:
        if self.engine.nodes.get(index) == member:
            self.engine.connect_node(index, member[0], 1, b"", member[1], {})
            self.log.follow(index)

    def _drop(self, index: int) -> None:
        self.engine.drop_node(index)
        self.engine.connected.pop(index, None)
        self.log.forget(index)

    # --- work

    def set(self, digest: bytes) -> None:
        self.engine.set_page(digest)
        generation = self.engine.pool[digest][0]

        def told(well: bool) -> None:
            self.hosts.sets += 1
            if well and self.engine.pool.get(digest, (0, 0))[0] == generation:
                self.engine.told[digest] = generation
                self.hosts.told += 1
                self.hosts.check_known(self)

        self.log.wait_told(digest, told)

    def remove(self, digest: bytes) -> None:
        """As a removal does, which waits for followers."""
        generation, _ = self.engine.pool[digest]
        self.engine.drop_page(digest)
        self._await_followers(digest, generation, self.log.tell_now(digest))

    def _await_followers(self, digest: bytes, generation: int, position: int) -> None:
        if self.log.behind(position):
            self.later(LOOK_S, lambda: self._await_followers(digest, generation, position))
        else:
            self.hosts.removed[(*self.address, digest)] = generation


class Logs:
    """`removed`: up to this generation no table may name a page of a holder."""

    def __init__(self, seed: int, size: int) -> None:
        self.rng = rng = random.Random(seed)
        delay_s = rng.choice([0.002, 0.02, 0.1, 0.4])
        self.net = Net(seed, rng.choice([0.0, 0.05]), rng.choice([0.0, 0.2]), delay_s)
        self.loop = Loop(self.net)  # type: ignore[abstract]
        self.names = [f"n{number}" for number in range(size)]
        self.stores_all = rng.random() < 0.6
        self.nodes: dict[str, LogNode] = {}
        self.sets = self.told = self.found = self.missed = 0
        self.removed: dict[tuple[str, int, bytes], int] = {}
        self._views: deque[View] = deque([View(1, ())], maxlen=4)
        self._incarnations = 0
        self._out: set[str] = set()  # alive, and not in the views
        self.came_back: set[tuple[str, int]] = set()  # or soon will

    # --- for RecordLog

    def log_of(self, node_id: str, incarnation: int) -> RecordLog | None:
        node = self.nodes.get(node_id)
        return node.log if node is not None and node.incarnation == incarnation else None

    def dark(self, name: str) -> bool:
        del name
        return False

    def holds(self, name: str) -> bool:
        del name
        return True

    # --- fates

    def start(self, name: str) -> None:
        if name in self.nodes:
            self.nodes[name].process.kill()
        self._incarnations += 1
        self.nodes[name] = LogNode(self, name, self._incarnations)

    def change_view(self) -> None:
        members = tuple(self.nodes[name].address for name in self.names if name not in self._out)
        if members == self._views[-1].members:
            return
        view = View(self._views[-1].number + 1, members)
        self._views.append(view)
        for name, _ in members:
            self._later(self.rng.uniform(0.0, VIEW_S), partial(self._give, name, view))

    def _give(self, name: str, view: View) -> None:
        node = self.nodes[name]
        node.process.do(lambda: node.take(view))

    def _later(self, seconds: float, work: Work) -> None:
        self.net.after(seconds, work)

    def one_fate(self) -> None:
        rng, node = self.rng, self.nodes[self.rng.choice(self.names)]
        fate = rng.random()
        if fate < 0.1:
            self.start(node.name)
            self.change_view()
        elif fate < 0.2:
            node.hung = True
            self._later(rng.uniform(0.0, OFF_S), node.resume)
        elif fate < 0.3 and len(self._out) < len(self.names) - 2:
            self._out.add(node.name)
            self.came_back.add(node.address)
            self._later(rng.uniform(0.0, OFF_S), lambda: self._out.discard(node.name))
            self._later(OFF_S, self.change_view)
            self.change_view()
        elif fate < 0.45:
            self.change_view()
        elif fate < 0.65:
            self.net.cuts.add((node.name, rng.choice(self.names)))
        elif fate < 0.8:
            self.net.cuts.clear()
        elif fate < 0.85 and node.engine.connected:
            index = rng.choice(sorted(node.engine.connected))
            node.process.do(partial(self._connect_anew, node, index))
        elif fate < 0.9:
            node.process.do(node.log.feed.forget)

    @staticmethod
    def _connect_anew(node: LogNode, index: int) -> None:
        if index in node.engine.nodes:
            node.log.leave(index)
            node.log.follow(index)

    def somebody_works(self) -> None:
        node = self.nodes[self.rng.choice(self.names)]
        digest = digest_of(f"{node.name} {self.rng.randrange(PAGES)}")

        def work() -> None:
            if not node.view.number:
                return
            if digest not in node.engine.pool:
                node.set(digest)
            elif self.rng.random() < 0.7:
                node.remove(digest)
            else:
                node.engine.drop_page(digest)

        node.process.do(work)

    def run(self, seconds: float) -> None:
        until = self.net.now + seconds
        while self.net.now < until:
            self.loop.run_until(min(self.net.now + LOOK_S, until))
            self.check()
        assert not self.loop.problems, "\n".join(self.loop.problems)

    # --- the judge

    def check_known(self, holder: LogNode) -> None:
        """A told set: no member of a new holder's view may be without the holder (rule 10)."""
        if holder.address in self.came_back:
            return  # readers without it in their view do not find it, and cannot read from it
        for name, incarnation in holder.view.members:
            node = self.nodes[name]
            if node is not holder and node.incarnation == incarnation:
                knows = holder.address in node.engine.nodes.values()
                is_later = node.view.number > holder.view.number  # may be without the holder
                assert knows or is_later, (
                    f"{self.at}: {name} in view {node.view.number} does not know {holder.address}, "
                    f"which is in view {holder.view.number}"
                )

    def check(self) -> None:
        for reader in self.nodes.values():
            self._check_removed(reader)
            if not reader.hung:
                self._check_told(reader)

    def _check_removed(self, reader: LogNode) -> None:
        digests = b"".join(sorted({digest for _, _, digest in self.removed}))
        for row in unpack_rows(reader.log.table.find_all(digests)):
            named = reader.engine.nodes[row[5]]
            gone = self.removed.get((*named, row[0]), 0)
            assert row[2] > gone, f"{self.at}: {reader.address} has a removed page of {named}"

    def _check_told(self, reader: LogNode) -> None:
        told = {
            digest: index
            for index, known in reader.engine.nodes.items()
            if (holder := self.nodes.get(known[0])) is not None and holder.address == known
            for digest in holder.engine.told
        }
        if not told:
            return
        rows, final = self._search(reader, sorted(told))
        named = {(row[0], row[5]) for row in rows}
        missed = [digest for digest, index in told.items() if (digest, index) not in named]
        self.found += len(told) - len(missed)
        self.missed += len(missed)
        for digest in missed:
            named_holder = reader.engine.nodes[told[digest]]
            assert digest not in final, (
                f"{self.at}: {reader.address} in view {reader.view.number} misses a page of "
                f"{named_holder}, which is in view {self.nodes[named_holder[0]].view.number}"
            )

    @staticmethod
    def _search(reader: LogNode, digests: list[bytes]) -> tuple[list[Row], set[bytes]]:
        """The holders that a reader finds, and the digests that it is told to have no others."""
        log, final = reader.log, set[bytes]()
        _, final_view = log.table.find(b"")
        if final_view == log.engine.view_number != 0:
            final.update(filter(log.owns, digests))

        def noted() -> Search:
            search, answers = log.search(digests), None
            while True:
                try:
                    asks = search.send(answers)  # type: ignore[arg-type]
                except StopIteration as end:
                    rows: list[Row] = end.value
                    return rows
                answers = yield asks
                for (_, part), answer in zip(asks[0], answers, strict=True):
                    final.update(part if answer is not None and answer[1] else ())

        return log.run_now(noted()), final

    @property
    def at(self) -> str:
        return f"{self.net.now:.3f} s"

    def check_quiet(self) -> None:
        """At rest every table is the holder's pool."""
        pools = {
            node.address: {d: generation for d, (generation, _) in node.engine.pool.items()}
            for node in self.nodes.values()
        }
        digests = b"".join(sorted({digest for pool in pools.values() for digest in pool}))
        for node in self.nodes.values():
            assert node.view == self._views[-1]
            assert node.log.feed.all_have_asked, f"{node.name} is not followed by all"
            if len(digests) // 16 > SMALL_TABLE:
                continue
            found: dict[tuple[str, int], dict[bytes, int]] = {a: {} for a in pools}
            for row in unpack_rows(node.log.table.find_all(digests)):
                found[node.engine.nodes[row[5]]][row[0]] = row[2]
            stored = {
                holder: {d: g for d, g in pool.items() if self.stores_all or node.log.owns(d)}
                for holder, pool in pools.items()
                if holder != node.address
            }
            # It may still have records of what it owned before.
            for holder, pool in stored.items():
                assert found[holder].items() >= pool.items(), f"{node.name} lacks records"
                assert found[holder].items() <= pools[holder].items(), f"{node.name} has others"
                assert not self.stores_all or found[holder] == pool
            assert node.log.table.find(b"")[1] == node.view.number
            for owner in node.engine.nodes:
                owned = [d for d in each(digests) if owner in node.engine.owners(d)]
                rows, is_final = node.log.run_now(node.log.ask(owner, owned, 1.0))
                assert is_final and {row[0] for row in rows} == set(owned)

    def describe(self) -> str:
        return (
            f"{self.sets} sets, {self.told} told, {len(self.removed)} removals, "
            f"{self.found} found, {self.missed} missed for want of an answer"
        )


def play(seed: int, size: int = 0) -> Logs:
    logs = Logs(seed, size or random.Random(seed).randint(3, 6))
    with logs.loop.entered():
        _play(logs)
    return logs


def _play(logs: Logs) -> None:
    for name in logs.names:
        logs.start(name)
    logs.change_view()
    logs.run(VIEW_S)
    for _ in range(STEPS):
        for _ in range(logs.rng.randint(1, 8)):
            logs.somebody_works()
            logs.run(logs.rng.expovariate(10.0))
        logs.one_fate()
        logs.run(logs.rng.choice([0.0, 0.0, 1.0]))
    logs.net.calm()
    logs.net.delay_s = min(logs.net.delay_s, 0.1)
    for node in logs.nodes.values():
        node.resume()
    logs.run(OFF_S)
    logs.change_view()
    logs.run(QUIET_S)
    logs.check_quiet()
    assert logs.told and logs.removed and logs.found
