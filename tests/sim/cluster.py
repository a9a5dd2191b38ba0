"""Whole daemons in virtual time. Only their sockets (rpc.py) and their data plane (engine.py) are
simulated. All randomness comes from one seed, so a failed run can be repeated exactly."""

from __future__ import annotations

import contextlib
import logging
import random
from collections import defaultdict
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple, TypeVar, cast
from unittest import mock

import grpc.aio
from harness.fake_engine import build_ring, each, unpack_rows
from harness.settings import fixed

from peercached import start_stop
from peercached.config import Config
from peercached.daemon import Daemon
from peercached.directory.placement import RingBuilder
from peercached.membership import NodeAddress, View
from peercached.peer.rpc.auth import Secret
from peercached.peer.rpc.connection_limits import ConnectionLimits
from peercached.peer.rpc.heads import Heads
from sim.agreement import Agreement
from sim.engine import SimEngine, packed
from sim.loop import InProcess, Loop, Process
from sim.members import DATA_PORT, PEER_PORT, TIMING
from sim.net import Net, Work
from sim.record_log import RecordLog
from sim.rpc import Network
from sim.sample import greets_only_holders

C = TypeVar("C", bound="SimCluster")

REPLICAS = 2
DRAIN_S = 10.0
# After this time a supervisor restarts a daemon that refused to start.
RESTART_S = 1.0
# Largest packet loss that counts as calm: resending still delivers in time.
CALM_DROP = 0.02
# In a calm network every node knows of a death after this time. It covers the TTL and its probes,
# and two rounds of takeover in case the masters are dead too.
DEAD_ARE_KNOWN_S = TIMING.takeover_after_s + 2 * TIMING.takeover_again_s + 2 * TIMING.member_ttl_s
# Nodes with different pool sizes own different shares of the ring.
POOLS_BYTES = (1 << 30, 1 << 30, 2 << 30, 5 << 30)
POOL_CHANGED = 0.1
# native/shard/shard.h: kHoldersPerDigestMax
ROWS_PER_DIGEST_MAX = 3
QUIET_DELAY_S, QUIET_S = 0.1, 6.0
# So many nodes ask every owner at the end of a story.
OWNERS_ASKED_BY_MAX = 20


class DataPlane(NamedTuple):
    engine: SimEngine
    ring: RingBuilder


class SimNode(InProcess):
    """One start of a daemon."""

    def __init__(self, cluster: SimCluster, name: str, incarnation: int, kept: View | None) -> None:
        self.cluster, self.name = cluster, name
        rng = cluster.rng
        self.process = Process(cluster.loop, name, rng.uniform(-1e3, 1e3), rng.uniform(0.97, 1.03))
        self.views: list[View] = []
        self.ending = False  # it drains or leaves
        self.process.run(self._make, incarnation, kept)

    def _make(self, incarnation: int, kept: View | None) -> None:
        cluster, name = self.cluster, self.name
        self.pool_bytes = cluster.pool_bytes(name, incarnation)
        config = Config(**{**self._settings(), **cluster.settings(name)})
        plane = cluster.data_plane(self, config, incarnation)
        self.engine = plane.engine
        self.daemon = Daemon(
            fixed(config),
            cast(Any, self.engine),
            Secret(b"of them all"),
            None,
            incarnation,
            Heads(config.discovery_addr, name, PEER_PORT, {head: [head] for head in cluster.heads}),
            plane.ring,
            kept,
        )
        self.address = self.daemon.placement.own.address
        if cluster.holders is not None:
            greets_only_holders(self.daemon, cluster.holders)
        self.daemon.keeper.keep = self._took
        cluster.loop.create_task(self._start())

    def _settings(self) -> dict[str, Any]:
        cluster, name = self.cluster, self.name
        return {
            "node_id": name,
            "host": name,
            "meta_port": PEER_PORT,
            "data_port": DATA_PORT,
            "pool_size": self.pool_bytes,
            "discovery_addr": [f"{head}:{PEER_PORT}" for head in cluster.heads],
            "heartbeat_interval_s": TIMING.heartbeat_interval_s,
            "member_ttl_s": TIMING.member_ttl_s,
            "max_masters": cluster.max_masters,
            "directory_replicas": REPLICAS,
            "socket_path": "/none",
            "admin_socket": "/none.admin",
        }

    async def _start(self) -> None:
        try:
            await start_stop.start(self.daemon)
        except start_stop.StartRefused:
            await start_stop.stop(self.daemon)
            self.cluster.net.after(0.0, lambda: self.cluster.refused(self))

    def _took(self, view: View) -> None:
        self.views.append(view)
        self.cluster.took(self, view)

    def stop(self, drain_s: float) -> None:
        self.cluster.loop.create_task(self._stop(drain_s))

    async def _stop(self, seconds: float) -> None:
        """Stops in the same order as run.py."""
        await self.daemon.handover.drain.before_stop(seconds)
        for digest in self.engine.pool:
            self.cluster.hides(digest, self)
        await start_stop.stop(self.daemon)
        self.cluster.net.after(0.0, lambda: self.cluster.ended(self))

    def answers(self) -> bool:
        return self.process.answers()

    def later(self, seconds: float, work: Work) -> None:
        """Runs `work` after this many seconds of the node's own clock."""
        after_s = max(seconds, 0.0) / self.process.drift
        self.cluster.net.after(after_s, lambda: self.process.do(work))

    @property
    def view(self) -> View:
        return self.daemon.placement.view

    @property
    def incarnation(self) -> int:
        return self.address.incarnation

    @property
    def hosts(self) -> SimCluster:
        return self.cluster

    def ask(self, work: Callable[[], Any]) -> Any:
        """Runs `work` at once in this process, even if it hangs."""
        return self.process.run(work)

    def removals_status(self) -> dict[str, Any]:
        """The section `removals` of its status."""
        found: dict[str, Any] = self.ask(lambda: self.daemon.removal_driver.sections({}))
        return dict(found["removals"])

    # --- pages

    def set_page(self, digest: bytes, done: Work = lambda: None) -> None:
        self.process.do(lambda: self.engine.publish(self.engine.set_page(digest), done))

    def evict(self, digest: bytes) -> None:
        self.process.do(lambda: self.engine.evict(digest))

    def get(self, digests: list[bytes], done: Callable[[set[bytes]], None]) -> None:
        self.process.do(lambda: self.engine.get(digests, done))

    def find(self, digests: bytes) -> dict[bytes, set[tuple[str, int]]]:
        """Maps each digest to the (node id, incarnation) pairs that the directory names, at this
        moment."""
        rows = self.find_now(digests)
        self.cluster.check_truth(self, rows)
        return {digest: set(holders) for digest, holders in self.named(rows).items()}

    def named(self, rows: bytes) -> dict[bytes, dict[tuple[str, int], int]]:
        """Generations by digest and holder."""
        found: dict[bytes, dict[tuple[str, int], int]] = {}
        for row in unpack_rows(rows):
            address = self.daemon.placement.nodes[row[5]].address
            found.setdefault(row[0], {})[address.node_id, address.incarnation] = row[2]
        return found

    def find_now(self, digests: bytes) -> bytes:
        """The records that a lookup would find if its messages took no time."""
        log = self.engine.log
        found = packed(log.run_now(log.find_all(each(digests))))
        return self.engine.local_rows(digests) + found


class SimCluster(Agreement):
    """`kept` has each node's view on disk. `visible` has, for each page, the live processes that
    hold it, if the owners know. `gaps` counts how often a page became visible nowhere, so a page
    was visible all the time if its count did not change. Each node takes one of the `pools` sizes.
    `holders`: see sample.py."""

    def __init__(
        self,
        seed: int,
        nodes: int,
        heads: int = 1,
        max_masters: int = 3,
        pools: Sequence[int] = POOLS_BYTES,
        holders: Container[str] | None = None,
        **net: float,
    ) -> None:
        self.holders = holders
        self._seed, self._pools = seed, pools
        self.net = Net(seed, **net)
        # The loop implements only the methods of the abstract class that daemons use.
        self.loop = Loop(self.net)  # type: ignore[abstract]
        self.network = Network(self.net, self.dark)
        self.rng = random.Random(seed + 1)
        self.max_masters = max_masters
        self.names = [f"n{i:04}" for i in range(nodes)]
        self.heads = self.names[:heads]
        self.nodes: dict[str, SimNode] = {}
        self.kept: dict[str, View] = {}
        self.changes = 0  # views adopted, summed over all nodes
        self.visible: dict[bytes, dict[SimNode, None]] = defaultdict(dict)
        self.gaps: dict[bytes, int] = defaultdict(int)
        self.dead_are_known_s = DEAD_ARE_KNOWN_S
        self.wrong: list[str] = []  # broken invariants
        self._truth: set[tuple[str, int, bytes, int]] = set()
        self._ended: dict[tuple[str, int], float] = {}  # when each process ended
        self._calm_since = 0.0
        self._dark: set[str] = set()  # machines that are down
        self._incarnations = count(1)
        self._instead = contextlib.ExitStack()

    def __enter__(self: C) -> C:
        """Starts all nodes. Until `__exit__`, simulated time, randomness and network replace those
        of the machine."""
        with contextlib.ExitStack() as stack:
            self._replace(stack)
            stack.callback(self.loop.close)
            for name in self.names:
                self.start(name)
            self._instead = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._instead.close()

    def _replace(self, stack: contextlib.ExitStack) -> None:
        rng = self.net.rng
        dice = mock.Mock(spec_set=["uniform", "Random"])
        dice.uniform, dice.Random = rng.uniform, lambda: random.Random(rng.random())
        secrets = mock.Mock(spec_set=["token_bytes", "token_hex"])
        secrets.token_bytes, secrets.token_hex = rng.randbytes, lambda n: rng.randbytes(n).hex()
        for name, instead in (
            ("time.monotonic", self.loop.time),
            ("peercached.daemon.random", dice),
            ("peercached.peer.rpc.client.secrets", secrets),
            ("peercached.peer.rpc.auth.secrets", secrets),
        ):
            stack.enter_context(mock.patch(name, instead))
        for owner, name, method in (
            (grpc.aio, "insecure_channel", self.network.insecure_channel),
            (grpc.aio, "server", self.network.server),
            (ConnectionLimits, "watch", _no_doors),
        ):
            stack.enter_context(mock.patch.object(owner, name, method))
        stack.callback(logging.disable, logging.root.manager.disable)
        logging.disable(logging.ERROR)
        stack.enter_context(self.loop.entered())

    def run(self, seconds: float) -> None:
        calm = not (self.net.cuts or self.net.drop > CALM_DROP)
        if not calm or any(node.hung for node in self.nodes.values()):
            self._calm_since = float("inf")
        elif self._calm_since == float("inf"):
            self._calm_since = self.net.now
        self.loop.run_until(self.net.now + seconds)
        self.loop.forget()
        assert not self.wrong, "\n".join(self.wrong)
        assert not self.loop.problems, "\n".join(self.loop.problems)

    def settings(self, name: str) -> dict[str, Any]:
        """Settings that replace the usual ones at this node's next start."""
        del name
        return {}

    def data_plane(self, node: SimNode, config: Config, incarnation: int) -> DataPlane:
        del config, incarnation
        return DataPlane(SimEngine(node), build_ring)

    def pool_bytes(self, name: str, incarnation: int) -> int:
        """The node's usual pool size, or at some starts another one, as if an operator had changed
        it."""
        start = random.Random(f"{self._seed} {name} {incarnation}")
        usual = random.Random(f"{self._seed} {name}")
        return (start if start.random() < POOL_CHANGED else usual).choice(self._pools)

    # --- fates

    def start(self, name: str, cold: bool = False) -> SimNode:
        self._dark.discard(name)
        kept = None if cold else self.kept.get(name)
        node = self.nodes[name] = SimNode(self, name, next(self._incarnations), kept)
        return node

    def took(self, node: SimNode, view: View) -> None:
        self.changes += 1
        if view.number:
            self.kept[node.name] = view

    def refused(self, node: SimNode) -> None:
        if self.nodes.get(node.name) is node:
            self.ended(node)
            self.net.after(RESTART_S, lambda: self._again(node.name))

    def _again(self, name: str) -> None:
        if name not in self.nodes and name not in self._dark:
            self.start(name)

    def ended(self, node: SimNode) -> None:
        """The process of this node has ended."""
        if self.nodes.get(node.name) is node:
            self.crash(node.name)

    def crash(self, name: str, machine: bool = False) -> None:
        """Kills a process, and its connections end. With `machine` the whole host dies, and its
        connections fall silent instead."""
        node = self.nodes.pop(name)
        self._ended[name, node.address.incarnation] = self.net.now
        for digest in list(self.visible):
            self.hides(digest, node)
        if machine:
            self._dark.add(name)
        self.network.kill(node.process, silently=machine)
        node.process.kill()

    def leave(self, name: str, drain: bool = False) -> None:
        """Stops the node as an operator does. It stays in `nodes` until it has ended."""
        node = self.nodes[name]
        node.ending = True
        seconds = DRAIN_S if drain else 0.0
        node.process.do(lambda: node.stop(seconds))

    def dark(self, name: str) -> bool:
        """Whether the machine is down. Nothing there refuses connections, so callers wait for their
        timeout."""
        return name in self._dark

    def process(self, address: NodeAddress) -> SimNode | None:
        node = self.nodes.get(address.node_id)
        return node if node is not None and node.address.same_process(address) else None

    def log_of(self, node_id: str, incarnation: int) -> RecordLog | None:
        node = self.nodes.get(node_id)
        return node.engine.log if node is not None and node.incarnation == incarnation else None

    # --- facts of the simulation

    def is_true(self, node: SimNode, rows: bytes) -> None:
        for row in unpack_rows(rows):
            self._truth.add((node.name, node.address.incarnation, row[0], row[2]))

    def shows(self, digest: bytes, node: SimNode) -> None:
        if node.process.up and digest in node.engine.pool:
            self.visible[digest][node] = None

    def hides(self, digest: bytes, node: SimNode) -> None:
        holders = self.visible[digest]
        if node in holders:
            del holders[node]
            self.gaps[digest] += not holders

    # --- invariants

    def check_truth(self, node: SimNode, rows: bytes) -> None:
        """Must hold at all times. Every record returned was published by the very process that it
        names. That process is in the reader's latest view, and has not been dead for longer than
        DEAD_ARE_KNOWN_S. The simulation tracks deaths and views itself."""
        view = node.views[-1] if node.views else View.alone(node.address)
        for digest, _, generation, _, _, holder, _ in unpack_rows(rows):
            named = node.daemon.placement.nodes.get(holder)
            if named is None:
                continue  # the engine has dropped this index
            address = named.address
            record = (address.node_id, address.incarnation, digest, generation)
            if record not in self._truth:
                self.wrong.append(f"{node.name} was given a record that never was: {record}")
            if not view.has(address):
                self.wrong.append(f"{node.name} was given a record of a stranger: {record}")
            ended = self._ended.get((address.node_id, address.incarnation))
            if ended is not None:
                dead_s = self.net.now - max(ended, self._calm_since)
                if dead_s > self.dead_are_known_s:
                    self.wrong.append(
                        f"{node.name} was given a record of a process dead for {dead_s:.1f} s: "
                        f"{record}"
                    )

    def check_quiet(self) -> None:
        """Must hold once the cluster is at rest. All nodes have one view, and exactly the records
        of all others. Every live node finds every page of a live holder, and nothing else. So does
        every owner."""
        # With longer delays a lease is over before the next answer comes.
        self.net.delay_s = min(self.net.delay_s, QUIET_DELAY_S)
        self.run(QUIET_S)
        settled_by = self.net.now + 2.0
        before: object = None
        while before != (held := [list(node.engine.pool) for node in self.nodes.values()]) or any(
            node.engine.leaving for node in self.nodes.values()
        ):
            assert self.net.now < settled_by, "pages move again and again"
            self.run(0.1)
            before = held
        assert self.agreed(), self.describe()
        pages: dict[bytes, dict[tuple[str, int], int]] = {}
        for node in self.nodes.values():
            for digest, (generation, _) in node.engine.pool.items():
                pages.setdefault(digest, {})[node.name, node.incarnation] = generation
        everything = b"".join(dict.fromkeys([*self.visible, *pages]))
        for node in self.nodes.values():
            is_followed = node.engine.all_have_asked or not self.holds(node.name)
            assert is_followed, f"{node.name} is not followed by all"
            suspects = node.daemon.failures.suspects.reasons()
            assert not suspects, f"{node.name} suspects {suspects}"
            log = node.engine.log
            _, view_number = log.table.find(b"")
            assert view_number == node.view.number, f"{node.name} does not hear all"
            records = node.named(log.table.find_all(everything))
            own = (node.name, node.incarnation)
            of_others = {
                digest: others
                for digest, holders in pages.items()
                if (others := {h: g for h, g in holders.items() if h != own})
            }
            assert records == of_others, f"{node.name} has other records"
            found = node.find(everything)
            assert found == {d: set(h) for d, h in pages.items()}, f"{node.name} finds other pages"
        for node in list(self.nodes.values())[:OWNERS_ASKED_BY_MAX]:
            self._check_owners(node, each(everything), pages)
        assert not self.wrong, "\n".join(self.wrong)

    def _check_owners(
        self, node: SimNode, digests: list[bytes], pages: Mapping[bytes, Collection[object]]
    ) -> None:
        owned: dict[int, list[bytes]] = defaultdict(list)
        for digest in digests:
            for owner in node.engine.owners(digest):
                owned[owner].append(digest)
        log = node.engine.log
        for owner, part in owned.items():
            rows, is_final = log.run_now(log.ask(owner, part, 1.0))
            name = node.daemon.placement.nodes[owner].address.node_id
            assert is_final, f"{name} is not final for {node.name}"
            named = node.named(packed(rows))
            for digest in part:
                there = min(len(pages.get(digest, ())), ROWS_PER_DIGEST_MAX)
                assert len(named.get(digest, ())) >= there, f"{name} lacks a record"

    def readers(self) -> list[SimNode]:
        """Members that serve workers and are not about to leave."""
        return [
            node
            for node in self.nodes.values()
            if node.answers() and node.engine.serves and node.view.number and not node.ending
        ]

    def holds(self, name: str) -> bool:
        return self.holders is None or name in self.holders

    def setters(self) -> list[SimNode]:
        """The readers that may hold pages."""
        return [node for node in self.readers() if self.holds(node.name)]

    def describe(self) -> str:
        return "\n".join(
            f"{node.name}#{node.address.incarnation} view {node.view.counter} of "
            f"{[(m.node_id, m.address.incarnation, m.sequence) for m in node.view.members]}"
            for node in self.nodes.values()
        )


async def _no_doors(doors: ConnectionLimits, port: int) -> None:
    """Replaces ConnectionLimits.watch: simulated nodes have no sockets to watch."""
