"""Membership in etcd: each node keeps its key there under a lease, and watches all nodes' keys.

A stamp beside the keys gives all nodes the same view (peercached/membership/etcd_view.py). If etcd
cannot be reached, or has lost our lease or all its data, the node keeps its last view and
reconnects by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import random
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from peercached.health import Say
from peercached.membership import (
    Heartbeat,
    HeartbeatAnswer,
    Member,
    NodeAddress,
    State,
    Timing,
    View,
)
from peercached.membership.etcd_view import EtcdView
from peercached.membership.view import VIEW_NUMBER_MAX
from peercached.news import News
from peercached.peer.directory.shared_epochs import SharedEpochs
from peercached.peer.membership.cluster import JoinRefused, ViewFound
from peercached.peer.membership.embedded.calls import MemberCalls
from peercached.peer.membership.etcd import report as etcd_report
from peercached.peer.membership.etcd.client import EtcdClient, EtcdError
from peercached.peer.membership.etcd.epochs import EtcdEpochs
from peercached.peer.membership.etcd.first_to_fail import first_to_fail
from peercached.peer.membership.etcd.goodbyes import EtcdGoodbyes
from peercached.peer.membership.etcd.joins import EtcdJoins, WaitOver
from peercached.peer.membership.etcd.keys import EtcdKeys
from peercached.peer.membership.etcd.own_key import EtcdOwnKey, Taken
from peercached.peer.rpc.client import Peers
from peercached.peer.rpc.pings import reaches
from peercached.timeout import within

log = logging.getLogger(__name__)

RETRY_FIRST_S = 0.1
# A lost lease or key is renewed at once, before another node makes a view without us. A further
# loss within so many seconds backs off.
RENEWALS_APART_S = 1.0


class _KeyLost(Exception):
    """etcd has lost our key or its lease."""


class EtcdMembership:
    """Implements Cluster (peer/membership/cluster.py). Use it on the event loop's thread."""

    def __init__(
        self,
        address: NodeAddress,
        client: EtcdClient,
        prefix: str,
        timing: Timing,
        peers: Peers,
        epochs: SharedEpochs,
        news: News,
        remembered: View | None = None,
        settings: Sequence[str] = (),
    ) -> None:
        """`remembered`: the last view of an earlier start, for a start without etcd. `settings`:
        see config/shared.py."""
        self.own = Member(address)
        self.refused = ""
        self.problem = "not asked yet"  # empty: the session with etcd is up
        self._client = client
        self._timing = timing
        self._peers = peers
        self._local_epochs = epochs
        self._epochs = EtcdEpochs(client, prefix, timing, epochs)
        self._news = news
        self._state = EtcdView(address, timing)
        self._keys = EtcdKeys(prefix, address.node_id, self._state, settings)
        self._joins = EtcdJoins(client, prefix, address.node_id, timing)
        self._goodbyes = EtcdGoodbyes(client, prefix, address, self._state)
        self._own_key = EtcdOwnKey(client, self._keys, self._state, self._joins, address, timing)
        self._remembered = remembered
        self._lease = 0
        self._renewed_at = float("-inf")
        self._failures = 0
        self._tried = asyncio.Event()
        self._changed = asyncio.Event()
        self._unfit = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def view(self) -> View:
        return self._state.view

    # --- life

    def start(self) -> None:
        self._task = asyncio.ensure_future(self._run())

    async def settle(self, timeout_s: float) -> None:
        """Waits until this node is in a view, must wait to join, cannot reach etcd, or is refused
        because its id is taken. Waits longer than `timeout_s` if another process's claim to the id
        needs that time to expire."""
        timing = self._timing
        claim_s = timing.lease_over_s + timing.retry_max_s + timing.etcd_deadline_s
        with contextlib.suppress(asyncio.TimeoutError):
            await within(max(timeout_s, claim_s), self._tried.wait())

    async def leave(self, timeout_s: float) -> None:
        await self._end()
        if not self._lease:
            return
        try:
            await within(timeout_s, self._say_goodbye())
        except (EtcdError, asyncio.TimeoutError):
            await self._say_goodbye_to_others(timeout_s)

    async def _say_goodbye_to_others(self, timeout_s: float) -> None:
        """Without etcd, says goodbye to the other nodes themselves. When our lease ends, they know
        that this node is not lost."""
        self._announce(State.LEFT)
        beat = Heartbeat(self.own, self.view.number)
        others = [m.address for m in self.view.members if m.node_id != self.own.node_id]
        calls = MemberCalls(self._peers, self._local_epochs, timeout_s)
        with contextlib.suppress(asyncio.TimeoutError):
            await calls.goodbye({address.endpoint: beat for address in others}, timeout_s)

    async def _say_goodbye(self) -> None:
        """Writes LEFT before the key goes: the other nodes wait for a key that just vanishes."""
        if self._own_key.is_there:
            await self._goodbyes.say()
            self._announce(State.LEFT)
            await self._client.put(self._keys.own, self._keys.value_of(self.own), self._lease)
        await self._client.revoke(self._lease)

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
                    log.warning(
                        "no session with etcd: %s (keeping the last view, if any; will retry)",
                        error,
                    )
                self._go_on_without(str(error))
                await self._client.use_next()
            except Taken as error:
                self.problem = str(error)
                if error.for_good:
                    self._refuse(self.problem)
            except WaitOver:
                continue
            except _KeyLost as error:
                log.warning("%s: registering this node again", error)
                last, self._renewed_at = self._renewed_at, time.monotonic()
                if self._renewed_at - last > RENEWALS_APART_S:
                    continue
            except Exception as error:
                log.exception("unexpected error in the etcd session; will retry")
                self._go_on_without(f"{type(error).__name__}: {error}")
            pause = RETRY_FIRST_S * 2 ** min(self._failures, 16)
            self._failures += 1
            await asyncio.sleep(min(pause, self._timing.retry_max_s) * random.uniform(0.5, 1.0))

    def _go_on_without(self, problem: str) -> None:
        self.problem = problem
        remembered = None if self._tried.is_set() else self._remembered
        if remembered is not None and 0 < remembered.number < VIEW_NUMBER_MAX:
            log.info(
                "no session with etcd at startup: starting with view %d saved by an earlier run",
                remembered.counter,
            )
            self._news.post(ViewFound(self._state.begin_cold(remembered)))
        self._tried.set()

    def _refuse(self, reason: str) -> None:
        first, self.refused = not self.refused, reason
        self._tried.set()
        if first:
            self._news.post(JoinRefused(reason))

    async def _session(self) -> None:
        """Reads, watches, registers, and renews the lease until a call fails or the key is lost."""
        if not self._lease or not await self._client.keep_alive(self._lease):
            self._lease = await self._client.grant(math.ceil(self._timing.member_ttl_s))
        found, revision = await self._client.read(self._keys.stamp)
        await self._goodbyes.hear()
        own_key = self._keys.reset(found, revision, time.monotonic())
        async with self._client.watch(self._keys.stamp, revision + 1) as changes:
            is_in = await self._own_key.put(self.own, own_key, self._lease)
            self.refused = self.problem = ""
            if is_in:
                self._take()
                part = [self._stamping(), self._announcing()]
            else:
                self._tried.set()
                part = [self._joins.wait_out()]
            await first_to_fail(
                self._follow(changes),
                self._keep(),
                self._epochs.follow(),
                self._epochs.put(),
                *part,
            )

    # --- this node's key

    async def _keep(self) -> None:
        pause_s = min(self._timing.heartbeat_interval_s, self._timing.member_ttl_s / 3)
        while True:
            await asyncio.sleep(pause_s)
            if not await self._client.keep_alive(self._lease):
                raise _KeyLost("etcd has lost our lease")
            self._failures = 0

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
            await self._client.put(self._keys.own, self._keys.value_of(self.own), self._lease)

    # --- the others' keys

    async def _follow(self, changes: Any) -> None:
        async for answer in changes:
            now = time.monotonic()
            changed = {event.kv.key for event in answer.events}
            for event in answer.events:
                self._keys.learn(event, now)
            if self._keys.own in changed and self._own_key.is_lost:
                raise _KeyLost("our key in etcd is gone")
            if self._keys.stamp in changed:
                self._take()
            self._unfit.set()

    def _take(self) -> bool:
        view = self._state.take(time.monotonic())
        if view is None:
            return False
        self._tried.set()
        self._news.post(ViewFound(view))
        return True

    async def _stamping(self) -> None:
        """Makes a view of the keys, when it is this node's turn and no other node has done it."""
        while True:
            self._unfit.clear()
            now = time.monotonic()
            due_at = self._state.due_at(now)
            if now < due_at:
                left_s = None if due_at == math.inf else due_at - now
                with contextlib.suppress(asyncio.TimeoutError):
                    await within(left_s, self._unfit.wait())
            elif not self._take() and self._state.due_at(now) <= now:
                stamp = self._state.next_stamp(now)
                await self._client.put_if(
                    self._keys.stamp, stamp.value, 0, self._keys.revision, self._keys.stamp
                )

    # --- for the daemon

    async def reaches(self, target: NodeAddress) -> bool:
        return await reaches(self._peers, target, self._timing.call_deadline_s)

    def on_heartbeat(self, beat: Heartbeat) -> HeartbeatAnswer:
        if beat.sender.state is State.LEFT:
            self._state.left(beat.sender.node_id, beat.sender.address.incarnation)
        raise LookupError("this node's membership is kept by etcd: set membership alike everywhere")

    def has_left(self, node_id: str, incarnation: int) -> bool:
        return self._state.has_left(node_id, incarnation)

    def endpoints(self) -> set[str]:
        return set()

    def document(self) -> dict[str, Any]:
        return {"kind": "etcd", "is_master": False, "masters": [], "silence_s": {}}

    @property
    def waits(self) -> str:
        if self.view.number > 0:
            return ""
        # The wait of a flapping node goes on while etcd does not answer.
        if reason := self.refused or self._joins.waits:
            return reason
        return "" if self.problem else "it is not in a view yet"

    @property
    def outside(self) -> bool:
        return self.view.number == 0

    def say(self, say: Say) -> None:
        missing = self._state.missing(time.monotonic())
        waits = self._joins.waits
        etcd_report.say(say, self.view, self.refused, self.problem, waits, missing)
