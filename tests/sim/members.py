"""Membership alone in virtual time: the daemon's own state machine on a simulated network. Messages
are delayed, lost, duplicated and reordered. Links are cut, even one-way. Nodes hang, crash and have
different clocks. All randomness comes from one seed, so a failed run can be repeated exactly."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from itertools import count

from peercached.membership import (
    Action,
    Heartbeat,
    HeartbeatAnswer,
    Membership,
    NodeAddress,
    OwnSign,
    Probe,
    PushView,
    Refused,
    SendBeat,
    Sign,
    Timing,
    View,
    ViewChanged,
)
from peercached.membership.signs import NEVER
from sim.agreement import Agreement
from sim.calls import Calls
from sim.net import Net

TIMING = Timing(heartbeat_interval_s=1.0, member_ttl_s=5.0)
PEER_PORT, DATA_PORT = 31998, 31999
# Larger clusters have no signs of life, because every node would send one to every other.
SIGNS_NODES_MAX = 32


class Node:
    """One start of a daemon. Messages to a hung node wait until it resumes."""

    def __init__(self, cluster: Members, name: str, incarnation: int, remembered: View | None):
        self.cluster, self.net, self.name = cluster, cluster.net, name
        self.skew_s = cluster.rng.uniform(-1000.0, 1000.0)
        self.drift = cluster.rng.uniform(0.97, 1.03)
        self.up = True
        self.hung = False
        self._waiting: list[Callable[[], None]] = []
        self.views: list[View] = []
        self.refused = 0
        self.address = NodeAddress(name, incarnation, name, PEER_PORT, DATA_PORT, 1 << 30)
        heads = [f"{head}:{PEER_PORT}" for head in cluster.heads]
        rank = cluster.heads.index(name) if name in cluster.heads else None
        self.membership = Membership(
            self.address, heads, rank, cluster.timing, self.clock, cluster.rng,
            cluster.max_masters, remembered,
        )  # fmt: skip
        self._tick_at = float("inf")
        self.calls = Calls(self)
        self.own_sign, self._sign_until = OwnSign(), 0.0
        self.signs: list[Sign] = []
        if len(cluster.names) <= SIGNS_NODES_MAX:
            self.net.after(self.net.rng.random(), self._follow)
        self.prepare()

    def prepare(self) -> None:
        """A hook that runs before anything happens, for further parts of a daemon."""

    @property
    def clock(self) -> float:
        return self.skew_s + self.drift * self.net.now

    @property
    def view(self) -> View:
        return self.membership.view

    def do(self, work: Callable[[], None]) -> None:
        """Runs `work` now, or after a hang ends, or never if the node is down."""
        if self.hung:
            self._waiting.append(work)
        elif self.up:
            work()

    def resume(self) -> None:
        self.hung = False
        waiting, self._waiting = self._waiting, []
        for work in waiting:
            self.do(work)

    def wake(self) -> None:
        now, signs = self.clock, self.signs
        self.signs = []
        self.membership.hear(signs, now)
        self.act(self.membership.tick(now))
        self.own_sign = self.membership.own_sign(now)
        self._sign_until = now + 1.5 * self.cluster.timing.heartbeat_interval_s

    def _follow(self) -> None:
        """Sends each member a question with a sign of life. The answer carries one too."""
        if not self.up:
            return
        for member in self.membership.latest.members:
            peer = self.cluster.process(member.address)
            if peer is not None and peer is not self:
                self.do(partial(self._ask, peer))
        self.net.after(self.cluster.timing.sign_wait_s, self._follow)

    def _ask(self, peer: Node) -> None:
        self._give_sign(peer, lambda: peer.do(lambda: peer._give_sign(self, answer=True)))

    def _give_sign(
        self, to: Node, then: Callable[[], None] = lambda: None, answer: bool = False
    ) -> None:
        sign = self.own_sign if self.clock < self._sign_until else OwnSign()

        def there() -> None:
            if sign.view_number:
                answered_at = to.clock if answer else NEVER
                to.signs.append(
                    Sign(
                        self.address.incarnation, sign.view_number, sign.sequence,
                        sign.is_master, to.clock, answered_at,
                    )
                )  # fmt: skip
            then()

        self.net.send(self.name, to.name, lambda: to.do(there))

    def _schedule(self) -> None:
        wait_s = max((self.membership.next_at(self.clock) - self.clock) / self.drift, 0.001)
        at = self.net.now + wait_s
        if at >= self._tick_at - 1e-9 and self._tick_at > self.net.now:
            return

        def due() -> None:
            if self._tick_at == at:
                self._tick_at = float("inf")
                self.wake()

        self._tick_at = at
        self.net.after(wait_s, lambda: self.do(due))

    def act(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, SendBeat):
                self._send(action)
            elif isinstance(action, PushView):
                self.calls.push(action)
            elif isinstance(action, Probe):
                self._probe(action)
            elif isinstance(action, ViewChanged):
                self.take_view(action.view)
            elif isinstance(action, Refused):
                self.refused += 1
        self._schedule()

    def take_view(self, view: View) -> None:
        self.views.append(view)
        self.cluster.on_view(self, view)

    def _send(self, action: SendBeat) -> None:
        to = action.endpoint.rpartition(":")[0]
        done = [False]

        def end(work: Callable[[], list[Action]]) -> None:
            if not done[0]:
                done[0] = True
                self.act(work())

        def answered(answer: HeartbeatAnswer) -> None:
            end(lambda: self.membership.answered(action.endpoint, answer, self.clock))

        def late() -> None:
            end(lambda: self.membership.failed(action.endpoint, "no answer", self.clock))

        def asked() -> None:
            self.cluster.beat_to(
                to,
                action.beat,
                lambda answer: self.net.send(
                    to, self.name, lambda: self.do(lambda: answered(answer))
                ),
            )

        self.net.send(self.name, to, asked)
        self.net.after(self.cluster.timing.call_deadline_s, lambda: self.do(late))

    def _probe(self, probe: Probe) -> None:
        """Pings the target, or asks `via` to ping it. Reports one result within the deadlines."""
        done = [False]
        target = probe.target

        def result(alive: bool) -> None:
            if not done[0]:
                done[0] = True
                self.act(self.membership.probed(probe, alive, self.clock))

        def ping(source: str, alive: Callable[[], None]) -> None:
            def there() -> None:
                node = self.cluster.process(target)
                if node is not None:
                    node.do(lambda: self.net.send(target.node_id, source, alive))

            self.net.send(source, target.node_id, there)

        deadline_s = self.cluster.timing.call_deadline_s
        if probe.via is None:
            ping(self.name, lambda: self.do(lambda: result(True)))
            self.net.after(deadline_s, lambda: self.do(lambda: result(False)))
            return
        via = probe.via.node_id

        def vouch() -> None:
            self.net.send(via, self.name, lambda: self.do(lambda: result(True)))

        def at_via() -> None:
            node = self.cluster.nodes.get(via)
            if node is not None:
                node.do(lambda: asked(node))

        def asked(node: Node) -> None:
            if node.membership.just_heard(target, node.clock):
                vouch()
            else:
                ping(via, lambda: node.do(vouch))

        self.net.send(self.name, via, at_via)
        self.net.after(2 * deadline_s, lambda: self.do(lambda: result(False)))

    def on_beat(self, beat: Heartbeat, reply: Callable[[HeartbeatAnswer], None] | None) -> None:
        answer, actions = self.membership.on_heartbeat(beat, self.clock)
        self.act(actions)
        if reply is not None:
            reply(answer)


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
        node = self.nodes[name] = self._make(name, next(self._incarnations), kept)
        node.wake()
        return node

    def _make(self, name: str, incarnation: int, kept: View | None) -> Node:
        return Node(self, name, incarnation, kept)

    def crash(self, name: str, machine: bool = False) -> None:
        """Kills a process. `machine` makes no difference here: a heartbeat without an answer ends
        at its deadline in both cases."""
        del machine
        node = self.nodes.pop(name)
        node.up = node.hung = False

    def leave(self, name: str) -> None:
        node = self.nodes[name]
        node.act(node.membership.announce_leave(node.clock))
        self.crash(name)

    def run(self, seconds: float) -> None:
        self.net.run_until(self.net.now + seconds)

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
        if node is not None:
            node.do(lambda: node.calls.serve(lambda: node.on_beat(beat, reply)))

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
