"""How long a cluster takes to agree, and what that costs on the wire, by its size.

    PYTHONPATH=tests .venv/bin/python -m sim.scale 100 1000 2000

The state machines and messages are the daemon's; time and network are virtual (one way 0.5 to
5 ms, no loss). Bytes are those of the protobuf messages, plus what a call adds to them.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from typing import Any

from peercached.membership import Heartbeat, HeartbeatAnswer
from peercached.peer import member_wire
from sim import figures
from sim.members import TIMING, Members

# Frames, compressed headers (with the session) and TCP/IP of one unary call, both ways together,
# half of it each. Two idle daemons in a network namespace of their own move 439 bytes for each
# heartbeat with its answer; the messages are 50 of them.
CALL_OVERHEAD_BYTES = 390
QUIET_S = 10.0
LIMIT_S = 120.0


class Meter:
    """Bytes sent and received by each node, of heartbeats, answers and pushes."""

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

        cluster.beat_to = beat_to  # type: ignore[method-assign]

    def _count(self, source: str, to: str, size_bytes: int) -> None:
        self.sent[source] += size_bytes + CALL_OVERHEAD_BYTES // 2
        self.received[to] += size_bytes + CALL_OVERHEAD_BYTES // 2

    def _beat_bytes(self, beat: Heartbeat) -> int:
        light = Heartbeat(beat.sender, beat.view_number)
        return member_wire.heartbeat_message(light, []).ByteSize() + self._update_bytes(beat.update)

    def _answer_bytes(self, answer: HeartbeatAnswer) -> int:
        light = HeartbeatAnswer(answer.verdict, answer.reason, None, answer.responder)
        return member_wire.answer_message(light, []).ByteSize() + self._update_bytes(answer.update)

    def _update_bytes(self, update: Any) -> int:
        if update is None:
            return 0
        known = self._updates.get(id(update.members))
        if known is None or known[0] is not update.members:
            size = member_wire.update_message(update).ByteSize()
            known = self._updates[id(update.members)] = (update.members, size)
        return known[1]

    def clear(self) -> None:
        self.sent.clear()
        self.received.clear()

    def both(self, name: str) -> int:
        return self.sent[name] + self.received[name]


def measure(nodes: int) -> dict[str, float]:
    cluster = Members(nodes, nodes, heads=3, delay_s=0.005)
    meter = Meter(cluster)
    found: dict[str, float] = {"nodes": nodes}
    found["form_s"] = cluster.until_agreed(LIMIT_S)
    # The join of one more, from its start to the last node that has it in its view.
    cluster.run(QUIET_S)
    meter.clear()
    cluster.run(QUIET_S)
    masters = cluster.names[:3]
    others = cluster.names[3:]
    found["member_bytes_s"] = sum(map(meter.both, others)) / len(others) / QUIET_S
    found["master_bytes_s"] = sum(map(meter.both, masters)) / 3 / QUIET_S
    victim = cluster.names[-1]
    cluster.crash(victim)
    meter.clear()
    found["crash_s"] = cluster.until_agreed(LIMIT_S, 0.02)
    quiet = found["crash_s"] * found["master_bytes_s"]
    found["crash_master_bytes"] = max(map(meter.both, masters)) - quiet
    cluster.run(QUIET_S)
    meter.clear()
    cluster.start(victim)
    found["join_s"] = cluster.until_agreed(LIMIT_S, 0.02)
    quiet = found["join_s"] * found["master_bytes_s"]
    found["join_master_bytes"] = max(map(meter.both, masters)) - quiet
    cluster.run(QUIET_S)
    cluster.crash(masters[0])
    found["master_crash_s"] = cluster.until_agreed(LIMIT_S, 0.02)
    return found


def main(sizes: list[int]) -> None:
    print(f"heartbeat {TIMING.heartbeat_interval_s} s, TTL {TIMING.member_ttl_s} s")
    for size in sizes:
        found = measure(size)
        figures.keep("membership", found)
        for name, value in found.items():
            print(f"{name:>20} {value:12.2f}", flush=True)


if __name__ == "__main__":
    main([int(size) for size in sys.argv[1:]] or [100, 1000, 2000])
