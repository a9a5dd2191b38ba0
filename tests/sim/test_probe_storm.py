"""A master suddenly hears nothing from hundreds of members. It is a process of the simulator that
runs the daemon's own Heartbeats, with fake peers."""

from __future__ import annotations

import asyncio
import random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from peercached.membership import (
    Heartbeat,
    HeartbeatAnswer,
    Member,
    Membership,
    NodeAddress,
    Timing,
    Verdict,
)
from peercached.news import News
from peercached.peer.membership.embedded import heartbeats
from peercached.peer.membership.embedded import wire as member_wire
from peercached.peer.membership.embedded.calls import MemberCalls
from peercached.peer.membership.embedded.heartbeats import Heartbeats
from peercached.peer.rpc.failures import TimedOut
from peercached.proto import peer_pb2 as pb
from sim.loop import Loop, Process
from sim.net import Net

TIMING = Timing(1.0, 5.0)
SILENT = [f"silent{number:04}" for number in range(400)]
# These names sort before the silent ones, so the other masters are among them.
HEARD = [f"heard{number}" for number in range(5)]
ROUND_TRIP_S = 0.02


class Network:
    """The peers of one master. With `alive` the silent members live, and only this master cannot
    reach them."""

    def __init__(self, alive: bool) -> None:
        self.alive = alive

    def link(self, endpoint: str) -> Any:
        name = endpoint.rpartition(":")[0]

        async def call(method: str, request: Any, timeout_s: float) -> Any:
            if name in SILENT:
                await asyncio.sleep(3600)
            await asyncio.sleep(ROUND_TRIP_S)
            if method == "Heartbeat":
                return member_wire.answer_message(
                    HeartbeatAnswer(Verdict.ACCEPTED, responder=name), []
                )
            if method == "Probe":
                if not self.alive and request.target.node_id in SILENT:
                    await asyncio.sleep(TIMING.call_deadline_s)
                    return pb.ProbeReply(alive=False)
                return pb.ProbeReply(alive=True)
            return pb.PingReply()

        async def call_within(method: str, request: Any, deadline_s: float, **_: Any) -> Any:
            try:
                return await asyncio.wait_for(call(method, request, deadline_s), deadline_s)
            except asyncio.TimeoutError:
                raise TimedOut(endpoint, deadline_s) from None

        return SimpleNamespace(call_within=call_within, metadata=None)


def address(name: str) -> NodeAddress:
    return NodeAddress(name, 1, name, 1, 2)


class Storm:
    """The only head with all members in its view. The silent ones send no more heartbeats."""

    def __init__(self, loop: Loop, alive: bool) -> None:
        self.loop = loop
        self.fewest = 1 << 30
        membership = Membership(
            address("a"), ["a:1"], 0, TIMING, loop.time(), random.Random(1), 3, None
        )
        epochs = cast(Any, SimpleNamespace(hear=lambda *_: None, some=list))
        calls = MemberCalls(cast(Any, Network(alive)), epochs, TIMING.call_deadline_s)
        signs = cast(Any, SimpleNamespace(take=lambda now: [], say=lambda sign, for_s: None))
        self.beats = Heartbeats(membership, TIMING, calls, signs, News())

    def members(self) -> set[str]:
        return {m.node_id for m in self.beats.view.members} - {"a"}

    def hear(self, names: list[str]) -> None:
        for name in names:
            beat = Heartbeat(Member(address(name)), self.beats.view.number)
            self.beats.on_heartbeat(beat)

    async def begin(self) -> None:
        self.beats.start()
        await asyncio.sleep(2.0)
        self.hear([*SILENT, *HEARD])
        await asyncio.sleep(1.0)
        assert self.members() == {*SILENT, *HEARD}

    async def last(self, seconds: float) -> None:
        until = self.loop.time() + seconds
        while self.loop.time() < until:
            await asyncio.sleep(0.5)
            self.hear(HEARD)
            self.fewest = min(self.fewest, len(self.members()))


def stormy(monkeypatch: pytest.MonkeyPatch, alive: bool, seconds: float) -> Storm:
    """A storm of so many seconds that is over."""
    # The loop implements only the methods of the abstract class that daemons use.
    loop = Loop(Net(seed=1))  # type: ignore[abstract]
    monkeypatch.setattr(heartbeats, "time", SimpleNamespace(monotonic=loop.time))
    process = Process(loop, "a", skew_s=1000.0, drift=1.0)

    async def work(storm: Storm) -> None:
        await storm.begin()
        await storm.last(seconds)
        await storm.beats.stop()

    with loop.entered():
        storm: Storm = process.run(Storm, loop, alive)
        working = process.run(lambda: loop.create_task(work(storm)))
        loop.run_until(seconds + 60.0)
        loop.close()
    working.result()
    return storm


def test_master_cut_off_from_hundreds_removes_no_live_member(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its direct probes time out after a second each. Probes through other members must not wait
    for them."""
    storm = stormy(monkeypatch, alive=True, seconds=20.0)
    assert storm.fewest == len(SILENT) + len(HEARD)


def test_hundreds_that_die_at_once_are_found_out_within_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    storm = stormy(monkeypatch, alive=False, seconds=2 * TIMING.member_ttl_s)
    assert storm.members() == set(HEARD)
