"""Record streams in virtual time: what peer/streams.py and the gRPC server do around the
daemon's HolderStream and LocalNode."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, cast

from peercached.directory.layout import ZERO_SUMMARY
from peercached.directory.messages import Ack, Batch
from peercached.directory.placement import Node
from peercached.directory.stream import HolderStream, Want
from peercached.membership import NodeAddress
from peercached.peer.streams import RECONNECT_FIRST_S, RECONNECT_MAX_S
from sim.fake_engine import FakeNative
from sim.net import End, Line

if TYPE_CHECKING:
    from sim.cluster import SimNode

SHAKE_S = 1.0
SCAN_S = 0.05


class _Outgoing:
    """Our records' stream to one owner, with its connection."""

    def __init__(self, node: Node, stream: HolderStream) -> None:
        self.node = node
        self.stream = stream
        self.line: Line | None = None
        self.incoming: _Incoming | None = None  # the other end of it
        self.pause_s = RECONNECT_FIRST_S
        self.gone = False


class _Incoming:
    """The owner's end of one connection, as PeerServicer.Publish has it."""

    def __init__(self, at: SimNode, caller: NodeAddress, answer: Callable[[Ack], None]) -> None:
        self._service = at.service
        self._caller = caller
        self._answer = answer
        self._holder: Node | None = None
        self._epoch = 0
        self.refused = False  # by a process that lives

    def batch(self, batch: Batch, line: Line) -> None:
        try:
            if self._holder is None:
                self._epoch = batch.epoch
                answer = cast(Any, self._answer)
                self._holder = self._service.open_stream(self._caller, batch.epoch, answer)
            ack = self._service.batch(self._holder, batch)
        except LookupError:
            self.refused = True
            self.ended()
            line.close(1)
            return
        if ack is not None:
            self._answer(ack)

    def ended(self) -> None:
        if self._holder is not None:
            self._service.close_stream(self._holder, self._epoch)
            self._holder = None


class SimStreams:
    """Implements publisher.Streams."""

    def __init__(self, node: SimNode) -> None:
        self._node = node
        self._lines: dict[int, _Outgoing] = {}
        self._epochs = count(1)
        self._scanning = False

    def offer(self, owner: int, rows: bytes, ticket: int) -> bool:
        out = self._lines.get(owner)
        if out is None:
            return False
        tracked = out.stream.offer(rows, 0 if out.node.suspect else ticket)
        self._node.later(0.0, lambda: self._pump(out))
        if lost := out.stream.take_lost():
            self._node.later(0.0, lambda: self._lost(out, lost))
        return tracked

    def _lost(self, out: _Outgoing, tickets: list[int]) -> None:
        self._node.publisher.lost(out.node.index, tickets)

    def set_view(self, number: int, added: list[Node], removed: list[Node]) -> None:
        for node in removed:
            out = self._lines.pop(node.index)
            out.gone = True
            if out.line is not None:
                out.line.close(0)
            self._lost(out, out.stream.disconnect())
        self._node.local.set_view(number)
        for out in self._lines.values():
            out.stream.set_view(number)
        for node in added:
            out = self._lines[node.index] = _Outgoing(node, HolderStream(node.index, number))
            self._node.later(0.0, partial(self._connect, out))
        self.scan_soon()

    def check(self, now: float) -> None:
        self._node.local.check(now)
        for out in list(self._lines.values()):
            out.stream.check(now)
            if out.stream.broken:
                self._pump(out)
        self.scan_soon()

    def close_all(self) -> None:
        for out in self._lines.values():
            if out.line is not None:
                out.line.close(0)

    @property
    def in_sync(self) -> bool:
        return all(out.stream.in_sync for out in self._lines.values())

    # --- connections

    def _connect(self, out: _Outgoing) -> None:
        if out.gone or out.line is not None:
            return
        us, net = self._node, self._node.net
        to = out.node.address
        there = us.cluster.process(to)
        cut = {(us.name, to.node_id), (to.node_id, us.name)} & net.cuts
        if cut or us.cluster.dark(to.node_id) or (there is not None and there.hung):
            us.later(SHAKE_S, lambda: self._refused(out))
        elif there is None:
            us.later(net.delay(), lambda: self._refused(out))
        else:
            us.later(2 * net.delay(), lambda: self._established(out, cast("SimNode", there)))

    def _refused(self, out: _Outgoing) -> None:
        if not out.gone:
            self._node.suspect(out.node)
            self._again(out)

    def _again(self, out: _Outgoing) -> None:
        self._node.later(out.pause_s, lambda: self._connect(out))
        out.pause_s = min(2 * out.pause_s, RECONNECT_MAX_S)

    def _established(self, out: _Outgoing, there: SimNode) -> None:
        if out.gone:
            return
        us = self._node

        def ended() -> None:
            if out.line is line:
                if not incoming.refused:
                    self._node.suspect(out.node)
                self._disconnected(out)

        def answer(ack: Ack) -> None:
            line.send(1, lambda: self._acknowledged(out, ack))

        incoming = _Incoming(there, us.address, answer)
        line = Line(
            us.net,
            (
                End(us.name, us.do, ended, us.answers),
                End(there.name, there.do, incoming.ended, there.answers),
            ),
        )
        there.inbound.append(line)
        out.line, out.incoming, out.pause_s = line, incoming, RECONNECT_FIRST_S
        out.stream.connect(next(self._epochs))
        self._pump(out)

    def _disconnected(self, out: _Outgoing) -> None:
        out.line = None
        self._lost(out, out.stream.disconnect())
        self._again(out)

    def _pump(self, out: _Outgoing) -> None:
        line, stream = out.line, out.stream
        if out.gone or line is None or out.incoming is None:
            return
        while (batch := stream.next_batch(self._node.clock)) is not None:
            line.send(0, partial(out.incoming.batch, batch, line))
        if stream.wanted() is not None:
            self.scan_soon()
        if stream.broken:
            line.close(0)
            if stream.overdue:
                self._node.suspect(out.node)
            self._disconnected(out)

    def _acknowledged(self, out: _Outgoing, ack: Ack) -> None:
        if out.gone:
            return
        if done := out.stream.ack(ack):
            self._node.publisher.acknowledged(out.node.index, done)
        self._pump(out)

    # --- scans of the pool, one at a time: it is read at one moment, the answer comes at another

    def scan_soon(self) -> None:
        if not self._scanning:
            self._scanning = True
            self._node.later(0.0, self._scan)

    def _scan(self) -> None:
        wants: list[tuple[_Outgoing | None, Any, Want]] = []
        if (want := self._node.local.wanted()) is not None:
            wants.append((None, self._node.local, want))
        for out in self._lines.values():
            if (want := out.stream.wanted()) is not None:
                wants.append((out, out.stream, want))
        if not wants:
            self._scanning = False
            return
        engine = self._node.engine
        given: list[Callable[[], None]] = []
        if summaries := [entry for entry in wants if not entry[2].mask]:
            as_of, by_owner = engine.pool_summaries()
            for out, stream, want in summaries:
                stream.scanning(want)
                summary = by_owner.get(out.node.index if out else 0, ZERO_SUMMARY)
                given.append(partial(stream.give_summary, want.attempt, as_of, summary))
        else:
            out, stream, want = wants[0]
            stream.scanning(want)
            as_of, rows = engine.pool_rows(out.node.index if out else 0, want.mask)
            buckets = dict(FakeNative.split_buckets(rows))
            given.append(partial(stream.give_rows, want.attempt, as_of, buckets))
        self._node.later(self._node.net.rng.uniform(0, SCAN_S), partial(self._scanned, given))

    def _scanned(self, given: list[Callable[[], None]]) -> None:
        for give in given:
            give()
        node = self._node
        if node.local.in_sync_for == node.placement.view.number:
            node.side.own_records_in_sync(node.local.in_sync_for)
        for out in list(self._lines.values()):
            self._pump(out)
        self._scan()
