"""Membership kept by etcd: a lease for each node, a watch for the others.

The same view for everybody comes from etcd's revisions (membership/etcd_view.py). When etcd cannot
be reached, or has lost our lease, the node goes on with its last view and comes back by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import random
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from google.protobuf.message import DecodeError

from peercached.directory.epochs import Epochs
from peercached.membership import Member, NodeAddress, State, Timing, View
from peercached.membership.claims import taken
from peercached.membership.etcd_view import EtcdView
from peercached.peer import member_wire
from peercached.peer.client import Peers
from peercached.peer.etcd_client import EtcdClient, EtcdError
from peercached.peer.etcd_epochs import EtcdEpochs
from peercached.peer.pings import reaches
from peercached.proto import etcd_pb2, peer_pb2

log = logging.getLogger(__name__)

RETRY_FIRST_S = 0.1


# etcd ends a lease some time after its TTL, and never sooner than its election takes.
LEASE_SLACK_S = 3.0


class _LeaseLost(Exception):
    pass


class _Taken(Exception):
    """Another process has our node id in etcd."""


class EtcdMembership:
    """On one event loop. What is asked of it is peer/cluster.py's Cluster."""

    def __init__(
        self,
        address: NodeAddress,
        client: EtcdClient,
        prefix: str,
        timing: Timing,
        peers: Peers,
        epochs: Epochs,
        on_view: Callable[[View], None],
        on_refused: Callable[[str], None],
    ) -> None:
        self.own = Member(address)
        self.view = View.alone(address)
        self.refused = ""
        self.problem = "not asked yet"  # empty: the session with etcd is up
        self._client = client
        self._nodes = f"{prefix.rstrip('/')}/nodes/".encode()
        self._key = self._nodes + address.node_id.encode()
        self._timing = timing
        self._peers = peers
        self._epochs = EtcdEpochs(client, prefix, timing, epochs)
        self._on_view = on_view
        self._on_refused = on_refused
        self._keys = EtcdView()
        self._lease = 0
        self._claimed: tuple[NodeAddress, float] | None = None
        self._failures = 0
        self._tried = asyncio.Event()
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    # --- life

    def start(self) -> None:
        self._task = asyncio.ensure_future(self._run())

    async def settle(self, timeout_s: float) -> None:
        """Until this node is in a view, or etcd cannot be reached, or the id is taken."""
        at_least_s = self._timing.member_ttl_s + 2 * LEASE_SLACK_S  # for _claim
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._tried.wait(), max(timeout_s, at_least_s))

    async def leave(self, timeout_s: float) -> None:
        await self._end()
        if self._lease:
            with contextlib.suppress(EtcdError, asyncio.TimeoutError):
                await asyncio.wait_for(self._client.revoke(self._lease), timeout_s)

    async def stop(self) -> None:
        await self._end()
        await self._client.close()

    async def _end(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            try:
                await self._session()
            except EtcdError as error:
                if str(error) != self.problem:
                    log.warning("membership is not kept up: %s", error)
                self.problem = str(error)
                self._tried.set()
                await self._client.use_next()
            except _Taken as error:
                self.problem = str(error)
            except _LeaseLost:
                log.warning("etcd has lost our lease: this node registers again")
                self._lease = 0
            except Exception as error:
                log.exception("the session with etcd ended")
                self.problem = f"{type(error).__name__}: {error}"
                self._tried.set()
            pause = RETRY_FIRST_S * 2 ** min(self._failures, 16)
            self._failures += 1
            await asyncio.sleep(min(pause, self._timing.retry_max_s) * random.uniform(0.5, 1.0))

    async def _session(self) -> None:
        """Reads, watches, registers, and keeps the lease until something fails."""
        if not self._lease or not await self._client.keep_alive(self._lease):
            self._lease = await self._client.grant(math.ceil(self._timing.member_ttl_s))
        keys, revision = await self._client.read(self._nodes)
        self._keys.reset(m for m in map(self._member_in, keys) if m is not None)
        marks = {kv.key: kv.mod_revision for kv in keys}
        async with self._client.watch(self._nodes, revision + 1) as changes:
            await self._register(marks.get(self._key, 0))
            await _first_to_fail(
                self._follow(changes),
                self._keep(),
                self._announcing(),
                self._epochs.follow(),
                self._epochs.tell(),
            )

    # --- this node's key

    async def _register(self, unchanged_since: int) -> None:
        """Our key, unless another process has it. An older start of ours gives way at once;
        a process elsewhere until its lease is over."""
        other = self._keys.member(self.own.node_id)
        if other is not None and not other.address.same_process(self.own.address):
            before = other.address
            ours = before.endpoint == self.own.address.endpoint
            if not (ours and before.incarnation < self.own.address.incarnation):
                self._claim(before)
                raise _Taken(taken(self.own.address, before))
        self._claimed = None
        if not await self._client.replace(self._key, self._value(), self._lease, unchanged_since):
            raise EtcdError("another process registers this node id at this moment")

    def _value(self) -> bytes:
        return bytes(member_wire.member_message(self.own).SerializeToString())

    def _claim(self, other: NodeAddress) -> None:
        """Another process has our node id. If it is dead its lease ends within the TTL."""
        now = time.monotonic()
        if self._claimed is None or not self._claimed[0].same_process(other):
            self._claimed = (other, now)
        if now - self._claimed[1] > self._timing.member_ttl_s + LEASE_SLACK_S:
            first, self.refused = not self.refused, taken(self.own.address, other)
            self._tried.set()
            if first:
                self._on_refused(self.refused)

    async def _keep(self) -> None:
        pause_s = min(self._timing.heartbeat_interval_s, self._timing.member_ttl_s / 3)
        while True:
            await asyncio.sleep(pause_s)
            if not await self._client.keep_alive(self._lease):
                raise _LeaseLost

    def announce_drain(self) -> None:
        self._announce(State.LEAVING)

    def announce_stay(self) -> None:
        self._announce(State.ALIVE)

    def _announce(self, state: State) -> None:
        if self.own.state is not state:
            self.own = replace(self.own, sequence=self.own.sequence + 1, state=state)
            self._changed.set()

    async def _announcing(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            await self._client.put(self._key, self._value(), self._lease)

    # --- the others' keys

    def _member_in(self, kv: etcd_pb2.KeyValue) -> Member | None:
        """None, and a line in the log, for what is no member of this version."""
        try:
            member = member_wire.member_of(peer_pb2.Member.FromString(kv.value))
            if self._nodes + member.node_id.encode() != kv.key:
                raise ValueError(f"it is of {member.node_id!r}")
            return member
        except (ValueError, DecodeError) as error:
            log.warning("the key %r in etcd is not used: %s", kv.key, error)
            return None

    async def _follow(self, changes: Any) -> None:
        async for answer in changes:
            for event in answer.events:
                revision = int(event.kv.mod_revision)
                if event.type == etcd_pb2.Event.DELETE:
                    node_id = event.kv.key.removeprefix(self._nodes).decode(errors="replace")
                    self._keys.delete(node_id, revision)
                elif (member := self._member_in(event.kv)) is not None:
                    self._keys.put(member, revision)
            self._take(self._keys.view())

    def _take(self, view: View) -> None:
        """A view without this process is not gone by: its key comes back, or its lease is lost."""
        if not view.has(self.own.address) or view.number <= self.view.number:
            return
        self.view = view
        self.refused = self.problem = ""
        self._failures = 0
        self._tried.set()
        self._on_view(view)

    # --- for the daemon

    async def reaches(self, target: NodeAddress) -> bool:
        return await reaches(self._peers, target, self._timing.call_deadline_s)

    def on_heartbeat(self, beat: Any, epochs: Any) -> Any:
        raise LookupError("this node's membership is kept by etcd: set membership alike everywhere")

    def endpoints(self) -> set[str]:
        return set()

    def document(self) -> dict[str, Any]:
        return {"kind": "etcd", "is_master": False, "masters": [], "silence_s": {}}

    def say(self, say: Callable[[str, str, str], None]) -> None:
        if self.refused:
            say("error", f"Out of the cluster: {self.refused}.", "Restart it after that.")
        elif self.problem:
            go_on = (
                f"goes on with view {self.view.counter}"
                if self.view.number
                else "serves only its own pages"
            )
            say(
                "error",
                f"etcd keeps no membership for this node, which {go_on}: {self.problem}.",
                "Look at etcd and at etcd_endpoints; this node keeps trying.",
            )


async def _first_to_fail(*works: Coroutine[Any, Any, None]) -> None:
    """Runs them until one raises; the others are ended then."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
