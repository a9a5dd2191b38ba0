"""Measures how long clusters of each size take to agree, and the traffic that this costs.

    make bench-scale ARGS="100 1000 2000"

Keeps the figures in docs/scaling.json, and draws docs/scaling.svg.

State machines and messages are the daemon's. Time and network are virtual (0.5 to 5 ms one way, no
loss). Each call keeps a process busy for CALL_S (calls.py). The byte counts include the protobuf
messages and the overhead of a call.
"""

# /// script
# dependencies = ["matplotlib>=3.8"]
# ///

from __future__ import annotations

import gc
import random
import sys
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

from sim.large import shared_views
from sim.members import TIMING, Members

from bench import figures
from peercached.membership import Heartbeat, HeartbeatAnswer, Timing
from peercached.peer.membership.embedded import wire as member_wire

# Overhead of one unary call: frames, compressed headers with the session, and TCP/IP. It covers
# both directions, half of it each. Two idle daemons in a network namespace move 439 bytes for each
# heartbeat and its answer; about 50 of them are the messages.
CALL_OVERHEAD_BYTES = 390
# Size of each member's key, alive or gone, since simulated members have none.
KEY_ON_WIRE_BYTES = 34
# Processor time of one heartbeat with its answer, measured (docs/performance.md).
CALL_S = 0.0004
QUIET_S = 10.0
MASTERS = 3
SEEDS = 3
EVENTS = 3  # of each kind per seed, but only one crash of the first master
LARGE = 2000  # from this many nodes: one seed with two events
SLOW_FROM = 1000
SETTINGS = {
    "membership": TIMING,
    # The settings that docs/performance.md recommends from a thousand nodes on.
    "membership_slow": Timing(heartbeat_interval_s=3.0, member_ttl_s=15.0),
}


class Meter:
    """Counts the bytes of heartbeats, answers and pushes that each node sends and receives."""

    def __init__(self, cluster: Members) -> None:
        self.sent: dict[str, int] = defaultdict(int)
        self.received: dict[str, int] = defaultdict(int)
        self._updates: dict[int, tuple[Any, int]] = {}
        self._cluster = cluster
        plain = cluster.beat_to

        def beat_to(name: str, beat: Heartbeat, reply: Any = None) -> None:
            def answer(found: HeartbeatAnswer) -> None:
                self._count(name, beat.sender.node_id, self._answer_bytes(found))
                reply(found)

            self._count(beat.sender.node_id, name, self._beat_bytes(beat))
            plain(name, beat, None if reply is None else answer)

        cluster.beat_to = beat_to

    def _count(self, source: str, to: str, size_bytes: int) -> None:
        self.sent[source] += size_bytes + CALL_OVERHEAD_BYTES // 2
        self.received[to] += size_bytes + CALL_OVERHEAD_BYTES // 2

    def _beat_bytes(self, beat: Heartbeat) -> int:
        light = Heartbeat(beat.sender, beat.view_number)
        message = member_wire.heartbeat_message(light, [])
        return message.ByteSize() + KEY_ON_WIRE_BYTES + self._update_bytes(beat.update)

    def _answer_bytes(self, answer: HeartbeatAnswer) -> int:
        light = HeartbeatAnswer(answer.verdict, answer.reason, None, answer.responder)
        return member_wire.answer_message(light, []).ByteSize() + self._update_bytes(answer.update)

    def _update_bytes(self, update: Any) -> int:
        if update is None:
            return 0
        known = self._updates.get(id(update.members))
        if known is None or known[0] is not update.members:
            keys = len(update.members) + len(update.gone)
            size = member_wire.update_message(update).ByteSize() + KEY_ON_WIRE_BYTES * keys
            known = self._updates[id(update.members)] = (update.members, size)
        return known[1]

    def clear(self) -> None:
        self.sent.clear()
        self.received.clear()

    def both(self, name: str) -> int:
        return self.sent[name] + self.received[name]


class Trial:
    """Applies events to one cluster at rest. `found` has a list of figures by name, one figure an
    event."""

    def __init__(self, nodes: int, seed: int, timing: Timing) -> None:
        self.found: dict[str, list[float]] = defaultdict(list)
        self._cluster = Members(
            seed, nodes, heads=3, delay_s=0.005, timing=timing, call_s=CALL_S, max_masters=MASTERS
        )
        self._meter = Meter(self._cluster)
        self._rng = random.Random(seed)
        self._rest_s = 2 * timing.member_ttl_s
        self._limit_s = 24 * timing.member_ttl_s
        self.found["form_s"].append(self._cluster.until_agreed(self._limit_s))

    def run(self) -> None:
        self._quiet()
        names = self._cluster.names
        for victim in self._rng.sample(names[MASTERS:], EVENTS if len(names) < LARGE else 2):
            self._event("crash", partial(self._cluster.crash, victim))
            self._event("join", partial(self._cluster.start, victim))
        self._event("master_crash", lambda: self._cluster.crash(names[0]))

    def _quiet(self) -> None:
        cluster, meter = self._cluster, self._meter
        masters, others = cluster.names[:MASTERS], cluster.names[MASTERS:]
        cluster.run(self._rest_s)
        meter.clear()
        cluster.run(QUIET_S)
        member, master = (
            sum(map(meter.both, some)) / len(some) / QUIET_S for some in (others, masters)
        )
        self.found["member_bytes_s"].append(member)
        self.found["master_bytes_s"].append(master)

    def _event(self, name: str, happens: Callable[[], object]) -> None:
        """Measures the time until agreement, and the bytes of the busiest master beyond its rate at
        rest."""
        cluster, meter = self._cluster, self._meter
        cluster.run(self._rest_s)
        meter.clear()
        happens()
        took_s = cluster.until_agreed(self._limit_s, 0.02)
        quiet = took_s * self.found["master_bytes_s"][0]
        busiest = max(map(meter.both, cluster.names[:MASTERS]))
        self.found[f"{name}_s"].append(took_s)
        self.found[f"{name}_master_bytes"].append(max(busiest - quiet, 0.0))


def measure(nodes: int, timing: Timing) -> dict[str, float]:
    """The median over all events and seeds. For times also the worst."""
    all_: dict[str, list[float]] = defaultdict(list)
    for seed in range(SEEDS if nodes < LARGE else 1):
        trial = Trial(nodes, seed, timing)
        trial.run()
        for name, values in trial.found.items():
            all_[name] += values
    found: dict[str, float] = {"nodes": nodes}
    for name, values in all_.items():
        found[name] = median(values)
        if name.endswith("_s") and not name.endswith("bytes_s"):
            found[f"{name.removesuffix('_s')}_worst_s"] = max(values)
    return found


def main(sizes: list[int]) -> None:
    for kind, timing in SETTINGS.items():
        print(f"heartbeat {timing.heartbeat_interval_s} s, TTL {timing.member_ttl_s} s")
        for size in sizes:
            if kind != "membership" and size < SLOW_FROM:
                continue
            found = measure(size, timing)
            figures.keep(kind, found)
            for name, value in found.items():
                print(f"{name:>26} {value:12.2f}", flush=True)


if __name__ == "__main__":
    gc.set_threshold(100_000, 50, 1000)  # as in large.py
    with shared_views():
        main([int(size) for size in sys.argv[1:]] or [100, 1000, 2000])
    figures.plot()
