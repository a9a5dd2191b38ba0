"""Drives the HolderStreams: one connection each, and the pool scans for their resyncs."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from itertools import count
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
from grpc.aio import EOF  # type: ignore[attr-defined]

from peercached.directory.layout import ZERO_SUMMARY
from peercached.directory.local import LocalShard
from peercached.directory.native import Native
from peercached.directory.owner import OwnerSide
from peercached.directory.pending import PendingBatches
from peercached.directory.placement import Change, Node, Placement
from peercached.directory.stream import HolderStream, Want
from peercached.peer.rpc import wire
from peercached.peer.rpc.client import Peers, failure_of
from peercached.peer.rpc.failure_detector import FailureDetector
from peercached.peer.rpc.failures import (
    CallFailed,
    Disconnected,
    Malformed,
    Refused,
    Unreachable,
)

if TYPE_CHECKING:
    from peercached._native import Engine

log = logging.getLogger(__name__)

RECONNECT_FIRST_S = 0.05
RECONNECT_MAX_S = 2.0
FLUSH_LOOK_S = 0.01


class _Line:
    """One stream with its connection."""

    def __init__(self, node: Node, stream: HolderStream) -> None:
        self.node = node
        self.stream = stream
        self.wake = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        self.problem = ""
        self.closed = False


def _standing(stream: HolderStream) -> tuple[bool, bool, bool]:
    return stream.has_view, stream.in_sync, stream.behind


def _failure(line: _Line, code: grpc.StatusCode, details: str | None) -> CallFailed:
    return failure_of(line.node.address.endpoint, code, details, budget_s=float("inf"))


class Streams:
    """The open streams, by owner. Implements publisher.Streams. Use it on the event loop's
    thread."""

    def __init__(
        self,
        engine: Engine,
        native: Native,
        placement: Placement,
        owner_side: OwnerSide,
        local: LocalShard,
        pending: PendingBatches,
        peers: Peers,
        failures: FailureDetector,
    ) -> None:
        self._pending = pending
        self._engine = engine
        self._native = native
        self._placement = placement
        self._owner_side = owner_side
        self._local = local
        self._peers = peers
        self._failures = failures
        self._lines: dict[int, _Line] = {}
        self._epochs = count(1)
        self._scan_wanted = asyncio.Event()
        self._scanner: asyncio.Task[None] | None = None
        self._closing: set[asyncio.Task[None]] = set()
        failures.on_suspect(lambda node: pending.stop_waiting_for(node.index))

    def start(self) -> None:
        self._scanner = asyncio.ensure_future(self._scan_loop())

    # --- publisher.Streams

    def offer(self, owner: int, rows: bytes, ticket: int) -> bool:
        line = self._lines.get(owner)
        if line is None:
            return False
        tracked = line.stream.offer(rows, 0 if line.node.suspect else ticket)
        if line.stream.behind:
            self._engine.open_owner(owner, False)
        line.wake.set()
        if lost := line.stream.take_lost():
            # Later, when the caller has noted the tickets that it waits for.
            asyncio.get_running_loop().call_soon(self._pending.lost, owner, lost)
        return tracked

    def under_way(self) -> list[int]:
        return [
            owner
            for owner, line in self._lines.items()
            if line.stream.connected and not line.stream.at_rest and not line.node.suspect
        ]

    def doubtful(self) -> list[int]:
        return [
            owner
            for owner, line in self._lines.items()
            if not (line.stream.exact and line.stream.connected)
            or (line.node.suspect and not line.stream.at_rest)
        ]

    # --- views

    def view_changed(self, change: Change) -> None:
        self.set_view(change.view.number, change.added, change.removed)

    def set_view(self, number: int, added: list[Node], removed: list[Node]) -> None:
        """Opens and closes streams for a new view. Call it after the engine has the new ring."""
        for node in removed:
            line = self._lines.pop(node.index, None)
            if line is not None:
                self._close(line)
        self._local.set_view(number)
        for line in self._lines.values():
            line.stream.set_view(number)
        for node in added:
            line = _Line(node, HolderStream(self._native, node.index, number, self._fence))
            self._lines[node.index] = line
            line.task = asyncio.ensure_future(self._run(line))
        self._open_owners()  # without other nodes, no acknowledgement would call it
        self._scan_wanted.set()

    def _fence(self) -> int:
        return self._engine.fence

    def _open_owners(self) -> None:
        """Lets records go in frames of the data channels (native/engine/publisher.h) to each owner
        that is in sync and not behind. Does nothing until all owners have the view. A new ring
        closes this path for all owners."""
        if not all(line.stream.has_view for line in self._lines.values()):
            return
        self._placement.everybody_has_the_view()
        for owner, line in self._lines.items():
            self._engine.open_owner(owner, line.stream.in_sync and not line.stream.behind)
        in_sync = self._local.in_sync_for == self._placement.view.number
        self._engine.open_owner(self._placement.own.index, in_sync)

    def _close(self, line: _Line) -> None:
        line.closed = True
        if line.task is not None:
            line.task.cancel()
            self._closing.add(line.task)
            line.task.add_done_callback(self._closing.discard)
        self._pending.lost(line.node.index, line.stream.disconnect())

    def resync_all(self) -> None:
        """Resyncs all owners, because updates were lost before they reached the streams."""
        self._local.resync()
        for line in self._lines.values():
            line.stream.resync()
        self._scan_wanted.set()

    def suspect_late_owners(self, now: float) -> None:
        """Answers overdue batches of records, and suspects the owners that let the whole timeout
        pass. However short it is: the next set would wait for them, too."""
        for owner in self._pending.expire(now):
            if (node := self._placement.nodes.get(owner)) is not None:
                late = f"{node.address.endpoint} did not take records in time"
                self._failures.failed(node, Disconnected(late))

    async def flush(self, seconds: float) -> None:
        """Waits until the owners have all records, for at most `seconds`."""
        deadline = time.monotonic() + seconds
        while not (self.idle() and self._pending.idle):
            if time.monotonic() >= deadline:
                log.info(
                    "stopping with unacknowledged records after waiting %g s: harmless, owners "
                    "drop the records of a node that left",
                    seconds,
                )
                return
            await asyncio.sleep(FLUSH_LOOK_S)

    def check(self, now: float) -> None:
        """Ends connections with overdue acknowledgements, and retries records that were refused for
        lack of room. Call it about twice a second: there may be thousands of streams."""
        self._local.check(now)
        for line in self._lines.values():
            line.stream.check(now)
            if line.stream.broken:
                line.wake.set()
        if self._local.wanted() or any(line.stream.wanted() for line in self._lines.values()):
            self._scan_wanted.set()

    # --- one connection after the other

    async def _run(self, line: _Line) -> None:
        pause = RECONNECT_FIRST_S
        while True:
            began = time.monotonic()
            try:
                await self._connect(line)
            except CallFailed as error:
                line.problem = str(error)
                if isinstance(error, Unreachable):
                    self._failures.failed(line.node, error)
                elif isinstance(error, Refused) and error.code is grpc.StatusCode.UNAUTHENTICATED:
                    self._peers.link(line.node.address.endpoint).forget_session()
            except asyncio.CancelledError:
                if line.closed:
                    raise
                # gRPC cancels calls when their channel is closed, as for a new certificate.
                line.problem = "the connection was closed at this end"
            except Exception:
                line.problem = "an error of our own, see the log"
                log.exception(
                    "unexpected error in the record stream to owner %s; will reconnect",
                    line.node.address.node_id,
                )
            finally:
                self._pending.lost(line.node.index, line.stream.disconnect())
            if time.monotonic() - began > RECONNECT_MAX_S:
                pause = RECONNECT_FIRST_S
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, RECONNECT_MAX_S)

    async def _connect(self, line: _Line) -> None:
        link = self._peers.link(line.node.address.endpoint)
        await link.ready(line.node.address)
        call = link.stub.Publish(metadata=link.metadata)
        line.stream.connect(next(self._epochs))
        line.wake.set()
        reader = asyncio.ensure_future(self._read(line, call))
        try:
            try:
                await self._write(line, call, reader)
            except asyncio.InvalidStateError:
                await reader  # the call is over: its status says why
        except grpc.aio.AioRpcError as error:
            raise _failure(line, error.code(), error.details()) from error
        finally:
            reader.cancel()
            call.cancel()
            # Fetch the reader's error, or asyncio would log it as never retrieved.
            await asyncio.wait([reader])
            if not reader.cancelled():
                reader.exception()

    async def _write(self, line: _Line, call: Any, reader: asyncio.Future[None]) -> None:
        own = self._placement.own.address
        stream = line.stream
        reader.add_done_callback(lambda _: line.wake.set())
        while True:
            await line.wake.wait()
            line.wake.clear()
            while (batch := stream.next_batch(time.monotonic())) is not None:
                await call.write(wire.batch_message(batch, own.node_id, own.incarnation))
            if stream.wanted() is not None:
                self._scan_wanted.set()
            if stream.broken:
                line.problem = stream.broken
                log.warning(
                    "record stream to owner %s broke: %s (will reconnect)",
                    line.node.address.node_id,
                    stream.broken,
                )
                if stream.overdue:
                    raise Disconnected(stream.broken)
                return
            if reader.done():
                reader.result()
                raise Disconnected(f"{line.node.address.endpoint} closed the stream")

    async def _read(self, line: _Line, call: Any) -> None:
        owner = line.node.index
        while (message := await call.read()) is not EOF:
            if isinstance(message, ValueError):
                raise Malformed(f"malformed acknowledgement: {message}") from message
            before = _standing(line.stream)
            if done := line.stream.ack(wire.ack_of(message)):
                self._pending.acknowledged(owner, done)
            if _standing(line.stream) != before:
                self._open_owners()
            line.problem = ""
            line.wake.set()
        # The owner ended the call: raise its status.
        raise _failure(line, await call.code(), await call.details())

    # --- scans of the pool: one at a time, off the event loop

    async def _scan_loop(self) -> None:
        while True:
            await self._scan_wanted.wait()
            self._scan_wanted.clear()
            try:
                while await self._scan_once():
                    pass
            except Exception:
                log.exception("a scan of the pool for a resync failed")
                await asyncio.sleep(RECONNECT_MAX_S)
                self._scan_wanted.set()

    async def _scan_once(self) -> bool:
        """Returns False if no stream wants a scan."""
        wants: list[tuple[int, HolderStream | LocalShard, Want]] = []
        if (want := self._local.wanted()) is not None:
            wants.append((self._placement.own.index, self._local, want))
        for owner, line in self._lines.items():
            if (want := line.stream.wanted()) is not None:
                wants.append((owner, line.stream, want))
        if not wants:
            return False
        try:
            await self._scan(wants)
        except Exception:
            for _, stream, _ in wants:
                stream.resync()
            raise
        return True

    async def _scan(self, wants: list[tuple[int, HolderStream | LocalShard, Want]]) -> None:
        loop = asyncio.get_running_loop()
        summaries = [entry for entry in wants if not entry[2].mask]
        if summaries:
            # One scan serves all owners.
            for owner, stream, want in summaries:
                self._scanning(owner, stream, want)
            as_of, by_owner = await loop.run_in_executor(None, self._engine.pool_summaries)
            for owner, stream, want in summaries:
                stream.give_summary(want.attempt, as_of, by_owner.get(owner, ZERO_SUMMARY))
                self._moved(owner)
        else:
            owner, stream, want = wants[0]
            self._scanning(owner, stream, want)
            as_of, buckets = await loop.run_in_executor(None, self._rows, owner, want.mask)
            stream.give_rows(want.attempt, as_of, buckets)
            self._moved(owner)

    def _scanning(self, owner: int, stream: HolderStream | LocalShard, want: Want) -> None:
        # Close the frame path. The scan may miss a record that goes in a frame from now on, and the
        # scan's buckets would erase that record at the owner.
        self._engine.open_owner(owner, False)
        stream.scanning(want)

    def _rows(self, owner: int, mask: bytes) -> tuple[int, dict[int, bytes]]:
        as_of, rows = self._engine.pool_rows(owner, mask)
        return as_of, dict(self._native.split_buckets(rows))

    def _moved(self, owner: int) -> None:
        line = self._lines.get(owner)
        if line is not None:
            line.wake.set()
        elif self._local.in_sync_for == self._placement.view.number:
            self._owner_side.own_records_in_sync(self._local.in_sync_for)
            self._open_owners()

    # --- for status and a clean stop

    def idle(self) -> bool:
        return all(line.stream.idle for line in self._lines.values() if line.stream.connected)

    def status(self) -> list[dict[str, Any]]:
        now = time.monotonic()
        return [
            {
                "owner": line.node.address.node_id,
                **line.stream.status(),
                "lag_s": line.stream.lag_s(now),
                "problem": line.problem,
            }
            for line in self._lines.values()
        ]

    async def stop(self) -> None:
        tasks = [self._scanner, *(line.task for line in self._lines.values())]
        running = [task for task in tasks if task is not None]
        for line in self._lines.values():
            line.closed = True
        for task in running:
            task.cancel()
        await asyncio.gather(*running, *self._closing, return_exceptions=True)
