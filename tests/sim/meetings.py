"""Healing of a partitioned cluster. It measures for how long a node's view lacks live members of
its own part, and how long it takes until all agree.

    make sim-meetings ARGS=SEEDS           how often, how long
    make sim-meetings ARGS="--seed 77"     every view change of one seed
"""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass, field
from functools import partial

from peercached.membership import View
from sim.members import TIMING, Members, Node

SHORT_S = 1.5 * TIMING.member_ttl_s
LONG_S = TIMING.takeover_after_s + 3 * TIMING.member_ttl_s
LIMIT_S = 12 * TIMING.member_ttl_s


@dataclass
class Meeting:
    """`lost_s`: longest time that a view lacked members of the node's own part that it had
    before healing. `agreed_s`: time until all had the complete view for good. `told`: log of view
    changes."""

    seed: int
    what: str
    lost_s: float = 0.0
    agreed_s: float = 0.0
    views: int = 0
    told: list[str] = field(default_factory=list)


def split(names: list[str], rng: random.Random) -> list[list[str]]:
    """Splits the names into two parts, or sometimes three."""
    shuffled = rng.sample(names, len(names))
    parts = 3 if len(names) >= 6 and rng.random() < 0.2 else 2
    ends = sorted(rng.sample(range(1, len(names)), parts - 1))
    return [shuffled[a:b] for a, b in zip([0, *ends], [*ends, len(names)], strict=True)]


def meet(seed: int) -> Meeting:
    rng = random.Random(seed)
    size = rng.choice([3, 4, 5, 5, 6, 9, 16])
    cluster = Members(
        seed,
        size,
        heads=rng.randint(1, min(3, size)),
        max_masters=rng.randint(1, 3),
        delay_s=rng.choice([0.002, 0.02, 0.1]),
    )
    # Links that heal one by one, as gRPC connections do because of their backoff.
    ragged_s = rng.choice([0.0, 0.0, 0.5, 2.0])
    cluster.until_agreed(20.0)
    cluster.run(rng.uniform(2.0, 4.0))
    parts = split(cluster.names, rng)
    for part in parts:
        cluster.cut(part, [name for name in cluster.names if name not in part])
    # After the short time, a part without a master may not know yet that the others are gone.
    cluster.run(rng.choice([SHORT_S, LONG_S]) + rng.uniform(0.0, 2.0))
    part_of = {name: set(part) for part in parts for name in part}
    had = {n.name: n.membership.view for n in cluster.nodes.values()}
    found = Meeting(
        seed,
        f"{'|'.join(','.join(n[-2:] for n in part) for part in parts)}"
        f" heads {len(cluster.heads)} masters {cluster.max_masters}"
        f" delay {cluster.net.delay_s} ragged {ragged_s}",
    )
    began = cluster.net.now
    lacking: dict[str, float] = {}

    def on_view(node: Node, view: View) -> None:
        cluster.changes += 1
        gone = {n for n in part_of[node.name] if n in had[node.name].by_id} - set(view.by_id)
        there = ",".join(n[-2:] for n in view.by_id)
        now_s = cluster.net.now - began
        found.told.append(
            f"{now_s:7.3f} s  {node.name[-2:]} view {view.counter} {view.mark} of {there}"
            + (f"  WITHOUT {','.join(sorted(n[-2:] for n in gone))}" if gone else "")
        )
        if node.name in lacking:
            found.lost_s = max(found.lost_s, now_s - lacking.pop(node.name))
        if gone:
            lacking[node.name] = now_s

    cluster.on_view = on_view
    for a, b in sorted(cluster.net.cuts):
        cluster.net.after(rng.uniform(0.0, ragged_s), partial(cluster.net.cuts.discard, (a, b)))
    cluster.run(LIMIT_S)
    assert cluster.agreed(), f"seed {seed}: {found.what}\n{cluster.describe()}"
    found.agreed_s = float(found.told[-1].split()[0]) if found.told else 0.0
    found.views = len({line.split("view ", 1)[1].split("  ")[0] for line in found.told})
    return found


def main(arguments: list[str]) -> None:
    if arguments[0] == "--seed":
        found = meet(int(arguments[1]))
        print(found.what, *found.told, sep="\n")
        return
    all_found = [meet(seed) for seed in range(int(arguments[0]))]
    lost = sorted((m for m in all_found if m.lost_s > 0), key=lambda m: -m.lost_s)
    agreed = sorted(m.agreed_s for m in all_found)
    print(f"{len(all_found)} meetings: in {len(lost)} somebody lost members of its own part")
    for meeting in lost[:20]:
        print(f"  {meeting.lost_s:6.3f} s  seed {meeting.seed}: {meeting.what}")
    print(f"all agree after {agreed[len(agreed) // 2]:.2f} s (median), {agreed[-1]:.2f} s at most")
    print(f"views: {sum(m.views for m in all_found) / len(all_found):.1f} each")


if __name__ == "__main__":
    main(sys.argv[1:])
