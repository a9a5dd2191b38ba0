"""A cluster in virtual time: the state machines of membership and directory, a network that
loses, delays and doubles messages, and nodes that crash and come back. Replayed by seed."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any, cast

from peercached.directory.layout import ROW_BYTES, holders_of, pack_mapping
from peercached.directory.local import LocalShard
from peercached.directory.lookup import Lookup, LookupCounters
from peercached.directory.messages import Ack, Batch, Kind
from peercached.directory.owner import OwnerSide
from peercached.directory.placement import Placement
from peercached.directory.publisher import Publisher
from peercached.directory.stream import HolderStream
from peercached.membership import (
    Action,
    Heartbeat,
    Membership,
    NodeAddress,
    Probe,
    PushView,
    SendBeat,
    Timing,
    View,
    ViewChanged,
)
from sim.fake_engine import FakeEngine, FakeNative, build_ring

TIMING = Timing(heartbeat_interval_s=1.0, member_ttl_s=5.0)
REPLICAS = 2
RECONNECT_S = 0.3
SCAN_S = 0.05


class Network:
    """Virtual time. Probabilities hold until `calm()`."""

    def __init__(self, seed: int, drop: float, double: float, delay_s: float) -> None:
        self.rng = random.Random(seed)
        self.now = 0.0
        self.drop, self.double, self.delay_s = drop, double, delay_s
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()

    def calm(self) -> None:
        self.drop = self.double = 0.0

    def after(self, delay_s: float, work: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (self.now + delay_s, next(self._order), work))

    def send(self, work: Callable[[], None]) -> None:
        """A message: arrives after a while of its own, perhaps twice, perhaps never."""
        for _ in range(1 + (self.rng.random() < self.double)):
            if self.rng.random() >= self.drop:
                self.after(self.rng.uniform(0.001, self.delay_s), work)

    def run_until(self, time: float) -> None:
        while self._queue and self._queue[0][0] <= time:
            self.now, _, work = heapq.heappop(self._queue)
            work()
        self.now = time


class Connection:
    """A stream's: in order both ways, until a lost message cuts it; both ends hear of that."""

    def __init__(self, net: Network, on_cut: Callable[[], None]) -> None:
        self._net = net
        self._on_cut = on_cut
        self._arrival = [0.0, 0.0]
        self.cut = False

    def send(self, direction: int, work: Callable[[], None]) -> None:
        net = self._net
        if self.cut:
            return
        if net.rng.random() < net.drop:
            self.close()
            return
        at = max(self._arrival[direction], net.now + net.rng.uniform(0.001, net.delay_s))
        self._arrival[direction] = at
        net.after(at - net.now, lambda: None if self.cut else work())

    def close(self) -> None:
        if not self.cut:
            self.cut = True
            self._net.after(self._net.delay_s, self._on_cut)


class SimNode:
    """One daemon start."""

    def __init__(self, cluster: SimCluster, name: str, incarnation: int) -> None:
        self.cluster = cluster
        self.net = net = cluster.net
        self.name = name
        self.alive = True
        self.address = NodeAddress(name, incarnation, name, 1, 2)
        heads = [f"{head}:1" for head in cluster.heads]
        rank = cluster.heads.index(name) if name in cluster.heads else None
        self.membership = Membership(self.address, heads, rank, TIMING, net.now, net.rng)
        self.engine = FakeEngine()
        engine = cast(Any, self.engine)
        self.placement = Placement(
            engine, self.address, build_ring, cast(Any, FakeNative), REPLICAS
        )
        self.side = OwnerSide(engine)
        self.local = LocalShard(engine)
        self.streams: dict[int, HolderStream] = {}
        self.lines: dict[int, tuple[int, Connection]] = {}  # by owner: epoch, connection
        self.inbound: dict[int, Connection] = {}  # by holder
        self.publisher = Publisher(engine, self.local, self, 1.0)
        self.epochs = count(1)
        self._on_view(self.membership.view)
        self.tick()

    # --- time

    def tick(self) -> None:
        if not self.alive:
            return
        now = self.net.now
        self.act(self.membership.tick(now))
        self.publisher.expire(now)
        for owner in list(self.streams):
            self.streams[owner].check(now)
            self.pump(owner)
        self.scan()
        if self.placement.trim_due(now):
            self.engine.shard_trim()
        self.net.after(0.1, self.tick)

    def crash(self) -> None:
        self.alive = False
        self.engine.stop()

    # --- membership

    def act(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, SendBeat):
                self._send_heartbeat(action)
            elif isinstance(action, Probe):
                self._probe(action)
            elif isinstance(action, PushView):
                beat = action.beat
                to = action.to
                self.net.send(partial(self.cluster.heartbeat_to, to.node_id, beat))
            elif isinstance(action, ViewChanged):
                self._on_view(action.view)

    def _send_heartbeat(self, action: SendBeat) -> None:
        endpoint = action.endpoint
        name = endpoint.rpartition(":")[0]
        done = [False]

        def first() -> bool:
            before, done[0] = done[0], True
            return self.alive and not before

        def asked() -> None:
            answer = self.cluster.heartbeat_to(name, action.beat)
            if answer is not None:
                self.net.send(lambda: answered(answer))

        def answered(answer: Any) -> None:
            if first():
                self.act(self.membership.answered(endpoint, answer, self.net.now))

        def late() -> None:
            if first():
                self.act(self.membership.failed(endpoint, "no answer", self.net.now))

        self.net.send(asked)
        self.net.after(TIMING.call_deadline_s, late)

    def _probe(self, probe: Probe) -> None:
        """Of a network without cuts: a live node is reached, by itself and through others."""

        def result() -> None:
            if self.alive:
                alive = self.cluster.process(probe.target) is not None
                self.act(self.membership.probed(probe, alive, self.net.now))

        self.net.after(self.net.delay_s, result)

    def _on_view(self, view: View) -> None:
        self.side.view_changes()
        change = self.placement.apply(view, self.net.now)
        for node in change.removed:
            self.publisher.lost(node.index, self.streams.pop(node.index).disconnect())
            if node.index in self.lines:
                self.lines.pop(node.index)[1].close()
        answers = self.side.set_view(view.number, self.placement.nodes)
        self.local.set_view(view.number)
        for stream in self.streams.values():
            stream.set_view(view.number)
        for node in change.added:
            self.streams[node.index] = HolderStream(node.index, view.number)
            self._connect_later(node.index)
        for holder, _, ack in answers:
            self._send_ack(holder, ack)

    # --- streams

    def _connect_later(self, owner: int) -> None:
        stream, node = self.streams[owner], self.placement.nodes[owner]

        def cut(epoch: int) -> None:
            peer = self.cluster.process(node.address)
            if peer is not None:
                peer.on_cut(self.address, epoch)
            if self.alive and self.lines.get(owner, (0, None))[0] == epoch:
                del self.lines[owner]
                self.publisher.lost(owner, stream.disconnect())
                if self.streams.get(owner) is stream:
                    self._connect_later(owner)

        def connect() -> None:
            if self.alive and self.streams.get(owner) is stream and owner not in self.lines:
                epoch = next(self.epochs)
                self.lines[owner] = (epoch, Connection(self.net, partial(cut, epoch)))
                stream.connect(epoch)
                self.pump(owner)

        self.net.after(RECONNECT_S, connect)

    def offer(self, owner: int, rows: bytes, ticket: int) -> bool:
        tracked = self.streams[owner].offer(rows, ticket)
        self.net.after(0.0, lambda: self.pump(owner))
        return tracked

    def pump(self, owner: int) -> None:
        stream, line = self.streams.get(owner), self.lines.get(owner)
        if not self.alive or stream is None or line is None:
            return
        connection = line[1]
        if stream.broken:
            connection.close()
            return
        to = self.placement.nodes[owner].address
        while (batch := stream.next_batch(self.net.now)) is not None:
            arrive = partial(self.cluster.batch_to, to, self.address, batch, connection)
            connection.send(0, arrive)

    def on_batch(self, sender: NodeAddress, batch: Batch, connection: Connection) -> None:
        holder = self.placement.find(sender.node_id, sender.incarnation)
        if holder is None:
            connection.close()
            return
        if batch.kind is Kind.HELLO:
            self.inbound[holder.index] = connection
        ack = self.side.batch(holder.index, batch)
        if ack is not None:
            self._send_ack(holder.index, ack)

    def on_cut(self, sender: NodeAddress, epoch: int) -> None:
        holder = self.placement.find(sender.node_id, sender.incarnation)
        if holder is not None:
            self.side.closed(holder.index, epoch)

    def _send_ack(self, holder: int, ack: Ack) -> None:
        to = self.placement.nodes[holder].address
        self.inbound[holder].send(1, partial(self.cluster.ack_to, to, self.address, ack))

    def on_ack(self, sender: NodeAddress, ack: Ack) -> None:
        node = self.placement.find(sender.node_id, sender.incarnation)
        if node is not None:
            self.publisher.acknowledged(node.index, self.streams[node.index].ack(ack))
            self.pump(node.index)

    def scan(self) -> None:
        wanted = [(0, cast(Any, self.local))] + [(o, cast(Any, s)) for o, s in self.streams.items()]
        for owner, stream in wanted:
            want = stream.wanted()
            if want is None:
                continue
            stream.scanning(want)
            # The pool is read at one moment, the answer comes at another.
            if want.mask:
                as_of, rows = self.engine.pool_rows(owner, want.mask)
                buckets = dict(FakeNative.split_buckets(rows))
                give = partial(stream.give_rows, want.attempt, as_of, buckets)
            else:
                as_of, summaries = self.engine.pool_summaries()
                summary = summaries.get(owner, bytes(4096))
                give = partial(stream.give_summary, want.attempt, as_of, summary)
            self.net.after(self.net.rng.uniform(0, SCAN_S), partial(self._given, owner, give))

    def _given(self, owner: int, give: Callable[[], None]) -> None:
        if self.alive:
            give()
            self.side.own_records_in_sync(self.local.in_sync_for)
            self.pump(owner)

    # --- pages

    def set_page(self, digest: bytes, done: Callable[[], None] = lambda: None) -> None:
        self.publisher.publish(self.engine.set_page(digest), self.net.now, 1.0, done)

    def evict(self, digest: bytes) -> None:
        self.publisher.forward(self.engine.drop_page(digest))

    def answer_lookup(
        self, digests: bytes, view_number: int
    ) -> tuple[bytes, list[tuple[str, int]], bool]:
        rows = self.engine.shard_lookup(digests)
        table, mapping = [], {}
        for holder in holders_of(rows):
            address = self.placement.nodes[holder].address
            mapping[holder] = len(table)
            table.append((address.node_id, address.incarnation))
        mapped = FakeNative.map_rows(rows, pack_mapping(mapping))
        return mapped, table, self.side.final(view_number)

    def find(self, digests: bytes) -> dict[bytes, set[tuple[str, int]]]:
        """Digest -> the node incarnations that are said to hold it."""
        lookup = Lookup(
            cast(Any, self.engine),
            cast(Any, FakeNative),
            self.placement,
            self.side,
            LookupCounters(),
            digests,
            self.net.now,
        )
        asks = lookup.start()
        while asks:
            ask = asks.pop()
            target = self.cluster.process(self.placement.nodes[ask.owner].address)
            if target is None:
                asks += lookup.failed(ask)
            else:
                number = self.placement.view.number
                asks += lookup.answered(ask, *target.answer_lookup(ask.digests, number))
        assert lookup.outstanding == 0
        found: dict[bytes, set[tuple[str, int]]] = {}
        rows = lookup.rows()
        for at in range(0, len(rows), ROW_BYTES):
            row = rows[at : at + ROW_BYTES]
            address = self.placement.nodes[int.from_bytes(row[40:42], "little")].address
            found.setdefault(row[:16], set()).add((address.node_id, address.incarnation))
        return found


class SimCluster:
    def __init__(
        self,
        seed: int,
        nodes: int,
        heads: int = 1,
        drop: float = 0.0,
        double: float = 0.0,
        delay_s: float = 0.05,
    ) -> None:
        self.net = Network(seed, drop, double, delay_s)
        self.names = [f"n{i:02}" for i in range(nodes)]
        self.heads = self.names[:heads]
        self.nodes: dict[str, SimNode] = {}
        self.incarnations = count(1)
        for name in self.names:
            self.start(name)

    def start(self, name: str) -> SimNode:
        self.nodes[name] = SimNode(self, name, next(self.incarnations))
        return self.nodes[name]

    def crash(self, name: str) -> None:
        self.nodes.pop(name).crash()

    def run(self, seconds: float) -> None:
        self.net.run_until(self.net.now + seconds)

    # --- the network's ends

    def process(self, address: NodeAddress) -> SimNode | None:
        node = self.nodes.get(address.node_id)
        return node if node is not None and node.address.same_process(address) else None

    def heartbeat_to(self, name: str, beat: Heartbeat) -> Any:
        node = self.nodes.get(name)
        if node is None:
            return None
        answer, actions = node.membership.on_heartbeat(beat, self.net.now)
        node.act(actions)
        return answer

    def batch_to(
        self, to: NodeAddress, sender: NodeAddress, batch: Batch, connection: Connection
    ) -> None:
        node = self.process(to)
        if node is None:
            connection.close()
        else:
            node.on_batch(sender, batch, connection)

    def ack_to(self, to: NodeAddress, sender: NodeAddress, ack: Ack) -> None:
        node = self.process(to)
        if node is not None:
            node.on_ack(sender, ack)

    # --- what must hold when everything is quiet

    def check_quiet(self) -> None:
        live = sorted(node.address for node in self.nodes.values())
        views = {node.placement.view for node in self.nodes.values()}
        assert len(views) == 1, f"views differ: {sorted(v.number for v in views)}"
        (view,) = views
        assert [member.address for member in view.members] == live
        pages: dict[bytes, set[tuple[str, int]]] = {}
        for node in self.nodes.values():
            for digest in node.engine.pool:
                pages.setdefault(digest, set()).add(
                    (node.address.node_id, node.address.incarnation)
                )
        for node in self.nodes.values():
            assert node.engine.shard_final, f"{node.name} waits for {node.side.unsynced()}"
            assert node.find(b"".join(pages)) == pages, f"{node.name} finds something else"
