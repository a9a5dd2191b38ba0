"""Random faults from a seed. Then all nodes must agree within a quiet time."""

from __future__ import annotations

import random
from collections.abc import Callable

from sim.cluster import SimCluster, SimNode
from sim.members import TIMING, Members, Node

# Covers everything after the last fault: probes, takeover by the next masters, retries and
# hysteresis.
QUIET_S = 40 * TIMING.member_ttl_s + TIMING.flap_wait_max_s
STEPS = 60
# Long enough for every node that is leaving to end.
LEAVES_S = 5.0


def chaos(seed: int, nodes_max: int = 12, size: int = 0) -> Members:
    """Runs the story of this seed and returns the cluster, which is in agreement. Without agreement
    it raises AssertionError, which shows every node's view."""
    rng = random.Random(seed)
    size = size or rng.randint(2, nodes_max)
    cluster = Members(
        seed,
        size,
        heads=rng.randint(1, min(3, size)),
        max_masters=rng.randint(1, 4),
        drop=rng.choice([0.0, 0.02, 0.1]),
        double=rng.choice([0.0, 0.1]),
        delay_s=rng.choice([0.01, 0.1, 0.5]),
        start=False,
    )
    for name in rng.sample(cluster.names, size):
        cluster.start(name)
        cluster.run(rng.choice([0.0, 0.1, 2.0]))
    members_trouble(cluster, rng, STEPS, lambda: cluster.run(rng.expovariate(0.7)))
    return cluster


def members_trouble(
    cluster: Members | SimCluster, rng: random.Random, steps: int, step: Callable[[], None]
) -> None:
    """Injects one fault after each step, then ends all faults. Raises AssertionError if the nodes
    do not agree in the end, or do not stay in agreement."""
    for _ in range(steps):
        step()
        _one_fate(cluster, rng)
    cluster.net.calm()
    _resume_all(cluster)
    cluster.run(LEAVES_S)
    if not any(head in cluster.nodes for head in cluster.heads):
        cluster.start(rng.choice(cluster.heads))
    # A node that hung has outdated news of dead members. It corrects them within one TTL and its
    # probes.
    cluster.run(3 * TIMING.member_ttl_s)
    cluster.until_agreed(QUIET_S, 0.5)
    changes = cluster.changes
    cluster.run(4 * TIMING.member_ttl_s)
    assert cluster.agreed(), f"the agreement did not last:\n{cluster.describe()}"
    assert cluster.changes == changes, "views change although nothing happens"


def _resume_all(cluster: Members | SimCluster) -> None:
    nodes: list[Node | SimNode] = list(cluster.nodes.values())
    for node in nodes:
        node.resume()


def _one_fate(cluster: Members | SimCluster, rng: random.Random) -> None:
    up = list(cluster.nodes)
    down = [name for name in cluster.names if name not in cluster.nodes]
    if not up:  # the last ones have left
        cluster.start(rng.choice(down))
        return
    fate = rng.random()
    if fate < 0.15 and len(up) > 1:
        cluster.crash(rng.choice(up), machine=rng.random() < 0.5)
    elif fate < 0.4 and down:
        cluster.start(rng.choice(down), cold=rng.random() < 0.5)
    elif fate < 0.5 and len(up) > 1:
        cluster.leave(rng.choice(up))
    elif fate < 0.6:
        cluster.nodes[rng.choice(up)].hung = True
    elif fate < 0.75:
        _resume_all(cluster)
    elif fate < 0.85:
        some = rng.sample(cluster.names, rng.randint(1, len(cluster.names) - 1))
        others = [name for name in cluster.names if name not in some]
        cluster.cut(some, others, both_ways=rng.random() < 0.6)
    elif fate < 0.9:
        cluster.cut([rng.choice(cluster.names)], [rng.choice(cluster.names)], both_ways=False)
    else:
        cluster.net.cuts.clear()
