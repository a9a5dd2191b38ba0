"""Whole daemons without their sockets in virtual time: the membership of members.py, and on top of
it the directory's state machines, lookups and READs, with the data plane of fake_engine.py."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any, cast

from peercached.directory.layout import HOLDERS_NAMED_MAX, withdrawals_of
from peercached.directory.local import LocalShard
from peercached.directory.messages import Ack
from peercached.directory.owner import OwnerSide
from peercached.directory.placement import Node as Placed
from peercached.directory.placement import Placement
from peercached.directory.publisher import Publisher
from peercached.membership import State, View
from peercached.peer.service import LocalNode
from peercached.peer.suspects import Suspects
from peercached.peer.trouble import PING_TIMEOUT_S
from sim.fake_engine import FakeEngine, FakeNative, build_ring, unpack_rows
from sim.members import TIMING, Members, Node
from sim.net import Line, Work
from sim.reads import RPC_TIMEOUT_S, SimReads
from sim.streams import SimStreams

REPLICAS = 2
TICK_S = 0.5
PUBLISH_TIMEOUT_S = 1.0
# Of packets; what is lost at that rate is sent again in time.
CALM_DROP = 0.02
# In a calm network a process is dead to everybody so long after its end: its TTL and probes; and if
# the masters are dead too, others must take over first, and others again if those are dead.
DEAD_ARE_KNOWN_S = 3 * TIMING.takeover_after_s + 2 * TIMING.member_ttl_s
# From the withdrawal of a record at a drain until the page is dropped (peer/drain.py).
READERS_DONE_S = 0.5

__all__ = ["TIMING", "SimCluster", "SimNode"]


class _Service(LocalNode):
    """What the node does when peers call; without an event loop."""

    def send_late(self, answers: list[tuple[int, int, Ack]]) -> None:
        for holder, epoch, ack in answers:
            sender = self._senders.get(self._placement.nodes[holder])
            if sender is not None and sender[0] == epoch:
                sender[1](ack)


class SimNode(Node):
    """One daemon start."""

    cluster: SimCluster

    def prepare(self) -> None:
        self.engine = FakeEngine()
        engine, native, none = cast(Any, self.engine), cast(Any, FakeNative), cast(Any, None)
        self.placement = Placement(engine, self.address, build_ring, native, REPLICAS)
        self.side = OwnerSide(engine)
        self.local = LocalShard(engine)
        self.local.on_refused = self.side.own_records_refused
        self.streams = SimStreams(self)
        self.publisher = Publisher(engine, self.local, self.streams, PUBLISH_TIMEOUT_S)
        self.suspects = Suspects()
        self.reads = SimReads(self)
        self.service = _Service(
            engine, native, self.placement, self.side, self.publisher, none, none, none, none, none,
            none, RPC_TIMEOUT_S, lambda: None,
        )  # fmt: skip
        self.inbound: list[Line] = []
        self._ping_at = float("inf")
        self._apply(self.membership.view)
        self._tick()

    # --- time

    def later(self, seconds: float, work: Work) -> None:
        """By this node's clock."""
        self.net.after(max(seconds, 0.0) / self.drift, lambda: self.do(work))

    def answers(self) -> bool:
        return self.up and not self.hung

    def _tick(self) -> None:
        now = self.clock
        for owner in self.publisher.expire(now):
            if owner in self.placement.nodes:
                self.suspect(self.placement.nodes[owner])
        self.streams.check(now)
        if self.placement.trim_due(now):
            self.engine.shard_trim()
        self.later(TICK_S, self._tick)

    # --- views

    def take_view(self, view: View) -> None:
        super().take_view(view)
        self._apply(view)

    def _apply(self, view: View) -> None:
        self.side.view_changes()
        change = self.placement.apply(view, self.clock)
        for node in change.removed:
            self.suspects.forget(node)
        number = self.placement.view.number
        answers = self.side.set_view(number, self.placement.nodes)
        self.streams.set_view(number, change.added, change.removed)
        self.service.send_late(answers)

    # --- suspicion

    def suspect(self, node: Placed) -> None:
        if self.placement.nodes.get(node.index) is not node or node is self.placement.own:
            return
        if self.suspects.suspect(node, "", self.clock):
            self.engine.suspect_node(node.index, True)
            self.publisher.stop_waiting_for(node.index)
            self.reads.stop_waiting_for(node)
            self._ping_later()

    def _ping_later(self) -> None:
        at = self.suspects.next_at()
        if at < self._ping_at:
            self._ping_at = at
            self.later(max(at - self.clock, 0.001), self._ping_due)

    def _ping_due(self) -> None:
        self._ping_at = float("inf")
        for node in self.suspects.due(self.clock):
            self._ping(node)
        self._ping_later()

    def _ping(self, node: Placed) -> None:
        to, ended = node.address, [False]

        def end(alive: bool) -> None:
            if ended[0]:
                return
            ended[0] = True
            if not alive:
                self.suspects.silent(node, self.clock)
            elif self.suspects.answered(node, self.clock):
                self.engine.suspect_node(node.index, False)
            self._ping_later()

        def asked() -> None:
            there = self.cluster.process(to)
            if there is not None:
                there.do(
                    lambda: self.net.carry(
                        to.node_id, self.name, lambda: self.do(lambda: end(True))
                    )
                )

        self.net.carry(self.name, to.node_id, asked)
        self.later(PING_TIMEOUT_S, lambda: end(False))

    # --- pages

    def set_page(self, digest: bytes, done: Work = lambda: None) -> None:
        rows = self.engine.set_page(digest)
        self.cluster.is_true(self, rows)

        def published() -> None:
            if digest in self.engine.published:
                self.cluster.shows(digest, self)
            done()

        self.publisher.publish(rows, self.clock, PUBLISH_TIMEOUT_S, published)

    def evict(self, digest: bytes) -> None:
        self.cluster.hides(digest, self)
        self.publisher.forward(self.engine.drop_page(digest))

    def find(self, digests: bytes) -> dict[bytes, set[tuple[str, int]]]:
        """Digest -> the node incarnations that are said to hold it, at this very moment."""
        rows = self.reads.find_now(digests)
        self.cluster.check_truth(self, rows)
        found: dict[bytes, set[tuple[str, int]]] = {}
        for row in unpack_rows(rows):
            address = self.placement.nodes[row[5]].address
            found.setdefault(row[0], set()).add((address.node_id, address.incarnation))
        return found

    # --- planned ends

    def drain(self, done: Work) -> None:
        """Hands every page to another node, one after the other; then `done`."""
        self.act(self.membership.announce_drain(self.clock))
        pages = list(self.engine.pool)
        rng = self.cluster.rng

        def next_page() -> None:
            takers = [
                n
                for n in self.placement.nodes.values()
                if n is not self.placement.own and not (n.suspect or n.leaving)
            ]
            if not pages or not takers:
                self.later(READERS_DONE_S, done)
                return
            digest = pages.pop()
            process = self.cluster.process(rng.choice(takers).address)
            if process is None:
                next_page()
                return
            taker = cast(SimNode, process)
            self.net.carry(
                self.name, taker.name, lambda: taker.do(lambda: self._adopt(taker, digest, taken))
            )

        def taken(digest: bytes) -> None:
            self.cluster.hides(digest, self)
            rows = withdrawals_of(self.engine.local_rows(digest))
            self.publisher.publish(rows, self.clock, PUBLISH_TIMEOUT_S, lambda: None)
            self.later(READERS_DONE_S, lambda: self.evict(digest))
            next_page()

        next_page()

    def _adopt(self, taker: SimNode, digest: bytes, taken: Callable[[bytes], None]) -> None:
        def here() -> None:
            self.net.carry(taker.name, self.name, lambda: self.do(lambda: taken(digest)))

        if digest in taker.engine.pool:
            here()
        else:
            taker.set_page(digest, here)


class SimCluster(Members):
    """`visible`: which live processes hold a page that their owners know. `gaps` counts how often
    a page was nowhere: what was visible all the time has the same count after as before."""

    nodes: dict[str, SimNode]  # type: ignore[assignment]

    def __init__(self, *settings: Any, **more: Any) -> None:
        self.visible: dict[bytes, dict[SimNode, None]] = defaultdict(dict)
        self.gaps: dict[bytes, int] = defaultdict(int)
        self.dead_are_known_s = DEAD_ARE_KNOWN_S
        self._truth: set[tuple[str, int, bytes, int]] = set()
        self._ended: dict[tuple[str, int], float] = {}  # when which process ended
        self._calm_since = 0.0
        self._dark: set[str] = set()  # the machines that are down
        super().__init__(*settings, **more)

    def run(self, seconds: float) -> None:
        calm = not (self.net.cuts or self.net.drop > CALM_DROP)
        if not calm or any(node.hung for node in self.nodes.values()):
            self._calm_since = float("inf")
        elif self._calm_since == float("inf"):
            self._calm_since = self.net.now
        super().run(seconds)

    def start(self, name: str, cold: bool = False) -> Node:
        self._dark.discard(name)
        return super().start(name, cold)

    def dark(self, name: str) -> bool:
        """Nothing there says that nobody listens: whoever asks waits for an answer."""
        return name in self._dark

    def _make(self, name: str, incarnation: int, kept: View | None) -> Node:
        return SimNode(self, name, incarnation, kept)

    def crash(self, name: str, machine: bool = False) -> None:
        """Of a process: its connections end. Of a `machine`: they fall silent."""
        node = self.nodes[name]
        super().crash(name, machine)
        self._ended[name, node.address.incarnation] = self.net.now
        node.engine.stop()
        for digest in list(self.visible):
            self.hides(digest, node)
        if machine:
            self._dark.add(name)
        else:
            node.streams.close_all()
            for line in node.inbound:
                line.close(1)

    # --- what is so

    def is_true(self, node: SimNode, rows: bytes) -> None:
        for row in unpack_rows(rows):
            self._truth.add((node.name, node.address.incarnation, row[0], row[2]))

    def shows(self, digest: bytes, node: SimNode) -> None:
        if node.up and digest in node.engine.pool:
            self.visible[digest][node] = None

    def hides(self, digest: bytes, node: SimNode) -> None:
        holders = self.visible[digest]
        if node in holders:
            del holders[node]
            self.gaps[digest] += not holders

    # --- what must hold

    def check_truth(self, node: SimNode, rows: bytes) -> None:
        """Always: a record that is returned was made by the very process that it names, which is
        in the last view that the reader took, and has not been dead for longer than it takes a
        cluster to know. What is dead, and which views were taken, the cluster knows by itself."""
        view = node.views[-1] if node.views else View.alone(node.address)
        for digest, _, generation, _, _, holder, _ in unpack_rows(rows):
            named = node.placement.nodes.get(holder)
            if named is None:
                continue  # the engine has no such index any more
            address = named.address
            record = (address.node_id, address.incarnation, digest, generation)
            assert record in self._truth, f"{node.name} was given a record that never was: {record}"
            assert view.has(address), f"{node.name} was given a record of a stranger: {record}"
            ended = self._ended.get((address.node_id, address.incarnation))
            if ended is not None:
                dead_s = self.net.now - max(ended, self._calm_since)
                assert dead_s <= self.dead_are_known_s, (
                    f"{node.name} was given a record of a process dead for {dead_s:.1f} s: {record}"
                )

    def check_quiet(self) -> None:
        """When nothing happens any more: one view of all, and every live page of a live holder is
        found through every live node, and nothing else."""
        assert self.agreed(), self.describe()
        pages: dict[bytes, set[tuple[str, int]]] = {}
        for node in self.nodes.values():
            for digest in node.engine.pool:
                pages.setdefault(digest, set()).add((node.name, node.address.incarnation))
        nothing = [digest for digest in self.visible if digest not in pages]
        for node in self.nodes.values():
            assert node.streams.in_sync, f"a stream of {node.name} is not in sync"
            assert node.engine.shard_final, f"{node.name} waits for {node.side.unsynced()}"
            assert not node.suspects.reasons(), f"{node.name} suspects somebody"
            found = node.find(b"".join(pages))
            for digest, holders in pages.items():
                named = found.pop(digest, set())
                assert named <= holders, f"{node.name} finds something else"
                assert len(named) == min(len(holders), HOLDERS_NAMED_MAX)
            assert not found, f"{node.name} finds something else"
            assert not node.find(b"".join(nothing)), f"{node.name} finds what is nowhere"

    def readers(self) -> list[SimNode]:
        """Members that are not about to leave."""
        return [
            node
            for node in self.nodes.values()
            if node.answers()
            and node.placement.view.number
            and node.membership.own.state is State.ALIVE
        ]
