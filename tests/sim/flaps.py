"""Counts the view changes that flapping nodes cause at the others, with and without damping.

    make sim-flaps ARGS="[PERIOD_TTL ...]"

A node crashes FLAPS times, once every `period` TTL, and restarts a second later. Either the period
is constant, or the lives have exponentially distributed lengths.
"""

from __future__ import annotations

import random
import sys
from unittest import mock

from peercached.membership import flapping
from sim.members import TIMING, Members

FLAPS = 40
DOWN_S = 1.0
TTL = TIMING.member_ttl_s
PERIODS_TTL = (2, 5, 13, 20, 30, 40, 50, 70, 100)
SEEDS = 3


def flap(cluster: Members, names: list[str], period_s: float, even: bool, seed: int) -> None:
    """Each node flaps independently, until it has crashed FLAPS times and is up again."""
    rng = random.Random(seed)
    up_s = period_s - DOWN_S
    left = dict.fromkeys(names, FLAPS)
    next_at = {name: cluster.net.now + rng.uniform(0.5, 1.0) * period_s for name in names}
    while left:
        name = min(left, key=lambda n: next_at[n])
        cluster.run(max(next_at[name] - cluster.net.now, 0.0))
        if name in cluster.nodes:
            cluster.crash(name)
            next_at[name] += DOWN_S
            continue
        cluster.start(name)
        next_at[name] += up_s if even else rng.expovariate(1.0 / up_s)
        left[name] -= 1
        if not left[name]:
            del left[name]


def views_of_others(
    seed: int, period_ttl: float, even: bool, free: float = flapping.FREE_JOINS, flappers: int = 1
) -> tuple[int, float]:
    """Returns the number of views that another node adopts meanwhile. Also returns how long it
    takes until all agree once the flapping nodes stay up."""
    cluster = Members(seed, 4 + flappers, heads=2)
    cluster.until_agreed(10.0)
    cluster.run(2.0)
    watcher = cluster.nodes[cluster.names[1]]
    before = len(watcher.views)
    with mock.patch.object(flapping, "FREE_JOINS", free):
        flap(cluster, cluster.names[-flappers:], period_ttl * TTL, even, seed)
        views = len(watcher.views) - before
        return views, cluster.until_agreed(130 * TTL, 1.0)


def row(period_ttl: float, flappers: int) -> str:
    found = ""
    for even in (True, False):
        plain, _ = views_of_others(0, period_ttl, even, float("inf"), flappers)
        damped = [
            views_of_others(seed, period_ttl, even, flappers=flappers) for seed in range(SEEDS)
        ]
        views = sum(each for each, _ in damped) / SEEDS
        found += f" {plain:14} {views:7.1f} {max(wait for _, wait in damped):7.0f}"
    return found


def main() -> None:
    print(f"{FLAPS} crashes of each; views of the others (damped: mean of {SEEDS} seeds), and the")
    print("longest time, s, until those who stay at last are members again")
    print(f"{'TTL':>5} {'nodes':>5} {'even: plain':>14} {'damped':>7} {'wait':>7}"
          f" {'random: plain':>14} {'damped':>7} {'wait':>7}")  # fmt: skip
    for period_ttl in map(float, sys.argv[1:]) if sys.argv[1:] else PERIODS_TTL:
        for flappers in (1, 3) if period_ttl == 20 else (1,):
            print(f"{period_ttl:5g} {flappers:5}{row(period_ttl, flappers)}", flush=True)


if __name__ == "__main__":
    main()
