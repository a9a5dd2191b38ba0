"""Membership alone in virtual time: the daemon's own state machine and its driver on a simulated
network. Messages are delayed, lost, duplicated and reordered. Links are cut, even one-way. Nodes
hang, crash and have different clocks. All randomness comes from one seed, so a failed run can be
repeated exactly."""

from __future__ import annotations

import contextlib
import logging
import random
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from typing import Any
from unittest import mock

from peercached.membership import (
    Heartbeat,
    HeartbeatAnswer,
    Membership,
    NodeAddress,
    OwnSign,
    Sign,
    Timing,
    View,
)
from peercached.membership.signs import NEVER
from peercached.news import Event, News
from peercached.peer.membership.cluster import JoinRefused, ViewFound
from peercached.peer.membership.embedded.heartbeats import Heartbeats
from peercached.peer.membership.embedded.life_signs import LifeSigns
from sim.agreement import Agreement
from sim.calls import Calls
from sim.loop import InProcess, Loop, Process
from sim.net import Net

TIMING = Timing(heartbeat_interval_s=1.0, member_ttl_s=5.0)
PEER_PORT, DATA_PORT = 31998, 31999
# Larger clusters have no signs of life, because every node would send one to every other.
SIGNS_NODES_MAX = 32


class Signs(LifeSigns):
    """Signs of life over the simulated network: each node asks every member for one at the usual
    interval, with its own in the question."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._own, self._until = OwnSign(), 0.0
        self._heard: list[Sign] = []

    def say(self, sign: OwnSign, for_s: float) -> None:
        self._own, self._until = sign, self._node.clock + for_s

    def take(self, now: float) -> list[Sign]:
        heard, self._heard = self._heard, []
        return heard

    def follow(self) -> None:
        us = self._node
        if not us.process.up:
            return
        for member in us.membership.latest.members:
            peer = us.cluster.process(member.address)
            if peer is not None and peer is not us:
                us.do(partial(self._ask, peer))
        us.net.after(us.cluster.timing.sign_wait_s, self.follow)

    def _ask(self, peer: Node) -> None:
        self._give(peer, lambda: peer.do(lambda: peer.signs._give(self._node, answer=True)))

    def _give(
        self, to: Node, then: Callable[[], None] = lambda: None, answer: bool = False
    ) -> None:
        us = self._node
        sign = self._own if us.clock < self._until else OwnSign()

        def there() -> None:
            if sign.view_number:
                answered_at = to.clock if answer else NEVER
                to.signs._heard.append(
                    Sign(
                        us.address.incarnation, sign.view_number, sign.sequence,
                        sign.is_master, to.clock, answered_at,
                    )
                )  # fmt: skip
            then()

        us.net.send(us.name, to.name, lambda: to.do(there))


class Node(InProcess):
    """One start of a daemon. Messages to a hung node wait until it resumes."""

    def __init__(self, cluster: Members, name: str, incarnation: int, remembered: View | None):
        self.cluster, self.net, self.name = cluster, cluster.net, name
        skew_s, drift = cluster.rng.uniform(-1000.0, 1000.0), cluster.rng.uniform(0.97, 1.03)
        self.process = Process(cluster.loop, name, skew_s, drift)
        self.do = self.process.do
        self.views: list[View] = []
        self.refused = 0
        self.address = NodeAddress(name, incarnation, name, PEER_PORT, DATA_PORT, 1 << 30)
        heads = [f"{head}:{PEER_PORT}" for head in cluster.heads]
        rank = cluster.heads.index(name) if name in cluster.heads else None
        self.membership = Membership(
            self.address, heads, rank, cluster.timing, self.clock, cluster.rng,
            cluster.max_masters, remembered,
        )  # fmt: skip
        self.calls, self.signs = Calls(self), Signs(self)
        news = News()
        news.read_by(self)
        self.beats = Heartbeats(self.membership, cluster.timing, self.calls, self.signs, news)
        if len(cluster.names) <= SIGNS_NODES_MAX:
            self.net.after(self.net.rng.random(), self.signs.follow)

    @property
    def view(self) -> View:
        return self.membership.view

    def run(self, work: Callable[..., Any], *args: Any) -> Any:
        """Runs `work` at once in this process."""
        with self.cluster.entered():
            return self.process.run(work, *args)

    def start(self) -> None:
        self.run(self.beats.start)

    def take(self, event: Event) -> None:
        if isinstance(event, ViewFound):
            self.views.append(event.view)
            self.cluster.on_view(self, event.view)
        elif isinstance(event, JoinRefused):
            self.refused += 1


class Members(Agreement):
    """A cluster. `kept` has each node's view on disk. `call_s` is how long one call keeps a process
    busy, including its own pushes of views. With 0 calls take no time."""

    def __init__(
        self,
        seed: int,
        nodes: int,
        heads: int = 1,
        max_masters: int = 3,
        timing: Timing = TIMING,
        start: bool = True,
        call_s: float = 0.0,
        **net: float,
    ) -> None:
        self.call_s = call_s
        self.net = Net(seed, **net)
        # The loop implements only the methods of the abstract class that daemons use.
        self.loop = Loop(self.net)  # type: ignore[abstract]
        self.rng = random.Random(seed + 1)
        self.timing, self.max_masters = timing, max_masters
        self.names = [f"n{i:04}" for i in range(nodes)]
        self.heads = self.names[:heads]
        self.nodes: dict[str, Node] = {}
        self.kept: dict[str, View] = {}
        self.changes = 0  # views adopted, summed over all nodes
        self.on_view: Callable[[Node, View], None] = self._keep
        self._incarnations = count(1)
        if start:
            for name in self.names:
                self.start(name)

    def _keep(self, node: Node, view: View) -> None:
        self.changes += 1
        if view.number:
            self.kept[node.name] = view

    def start(self, name: str, cold: bool = False) -> Node:
        kept = None if cold else self.kept.get(name)
        node = self.nodes[name] = Node(self, name, next(self._incarnations), kept)
        node.start()
        return node

    def crash(self, name: str, machine: bool = False) -> None:
        """Kills a process. `machine` makes no difference here: a heartbeat without an answer ends
        at its deadline in both cases."""
        del machine
        self.nodes.pop(name).process.kill()

    def leave(self, name: str) -> None:
        leaving = self.nodes[name].beats.leave(0.0)
        with contextlib.suppress(StopIteration):  # it sends its words without waiting for anything
            self.nodes[name].run(leaving.send, None)
        self.crash(name)

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Simulated time replaces that of the machine. Nothing below an error is logged."""
        quiet = logging.root.manager.disable
        logging.disable(logging.ERROR)
        try:
            with mock.patch("time.monotonic", self.loop.time), self.loop.entered():
                yield
        finally:
            logging.disable(quiet)

    def run(self, seconds: float) -> None:
        with self.entered():
            self.loop.run_until(self.net.now + seconds)
        self.loop.forget()
        assert not self.loop.problems, "\n".join(self.loop.problems)

    def process(self, address: NodeAddress) -> Node | None:
        node = self.nodes.get(address.node_id)
        return node if node is not None and node.address.same_process(address) else None

    def beat_to(
        self,
        name: str,
        beat: Heartbeat,
        reply: Callable[[HeartbeatAnswer], None] | None = None,
    ) -> None:
        node = self.nodes.get(name)
        if node is None:
            return

        def answer() -> None:
            found = node.beats.on_heartbeat(beat)
            if reply is not None:
                reply(found)

        node.calls.serve(answer)

    def describe(self) -> str:
        lines = []
        for node in self.nodes.values():
            m = node.membership
            lines.append(
                f"{node.name}#{node.address.incarnation} master={m.is_master(node.clock)} "
                f"view {m.view.counter} of {len(m.view.members)}, latest {m.latest.counter} of "
                f"{[(x.node_id, x.address.incarnation, x.sequence) for x in m.latest.members]}; "
                f"links {[(k.endpoint, k.answered, k.verdict.name, k.problem) for k in m.links]}"
            )
        return "\n".join(lines)
