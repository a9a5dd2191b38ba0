"""Stories of the whole cluster, membership and directory together, by kind and seed.

    make sim-stories ARGS=3000                  seeds 0 to 2999 of each kind (default: 1000)
    make sim-stories ARGS="--seed planned 77"   that one again

members   random faults with membership alone, so that clusters can be larger
pages     random faults while pages are set, evicted, looked up and read
planned   joins, drains, leaves and restarts: no reader misses a page that was always visible
hung      a master hangs: only that node may be removed, and no page of the others is missed
parted    a partition: each part keeps finding its own pages, also after healing
removed   pages are set, removed and read under random faults (removals.py)
logs      holders' logs and their followers alone, under random faults (logs.py)
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable

from harness.fake_engine import digest_of

from sim import logs, removals
from sim.chaos import chaos, members_trouble
from sim.cluster import SimCluster, SimNode
from sim.members import TIMING, Members
from sim.sample import holders_of

TTL_S = TIMING.member_ttl_s
PAGES = [digest_of(f"page {page}") for page in range(40)]
PAGES_AT_ONCE = 8
# A leaving node says goodbye. If that message is lost, the next heartbeat brings the news.
LEAVERS_ARE_KNOWN_S = 2 * TIMING.heartbeat_interval_s
PLANNED_MAX = 5  # changes
# After a cut each part adopts its own view: the first time is for a part with a master, the second
# for one that must make new masters.
PARTED_S, TAKEN_OVER_S = 1.5 * TTL_S, 2.5 * TTL_S
# Every WIDE_EVERY-th story has a size from WIDE, every LARGE_EVERY-th one from LARGE. The others
# have 3 to 6 nodes (2 to 12 without pages).
WIDE_EVERY, WIDE = 20, (10, 20)
LARGE_EVERY, LARGE = 250, (50, 100)


class Reader:
    """Random nodes read random pages again and again. `missed` lists the misses at `steady` nodes
    of pages that were always visible at steady holders."""

    def __init__(
        self, cluster: SimCluster, pause_s: float, steady: Callable[[SimNode], bool]
    ) -> None:
        self.reads = 0
        self.missed: list[str] = []
        self._counts_from = 0.0
        self._cluster = cluster
        self._pause_s = pause_s
        self._steady = steady
        self._rng = random.Random(cluster.rng.random())
        self.stopped = False
        self._next()

    def forget(self) -> None:
        """Clears the misses, and ignores those of reads in flight."""
        self.missed.clear()
        self._counts_from = self._cluster.net.now

    def _next(self) -> None:
        if self.stopped:
            return
        self._cluster.net.after(self._rng.expovariate(1 / self._pause_s), self._next)
        if not (readers := self._cluster.readers()):
            return
        reader, cluster = self._rng.choice(readers), self._cluster
        wanted = self._rng.sample(PAGES, PAGES_AT_ONCE)
        before = {
            digest: cluster.gaps[digest]
            for digest in wanted
            if self._steady(reader) and any(map(self._steady, cluster.visible[digest]))
        }
        began = cluster.net.now

        def done(got: set[bytes]) -> None:
            self.reads += 1
            if began < self._counts_from:
                return
            for digest, gaps in before.items():
                steady = any(map(self._steady, cluster.visible[digest]))
                if digest not in got and steady and cluster.gaps[digest] == gaps:
                    page, holders = PAGES.index(digest), cluster.visible[digest]
                    self.missed.append(
                        f"{reader.name} missed page {page} of {[h.name for h in holders]} "
                        f"between {began:.3f} and {cluster.net.now:.3f} s"
                    )

        reader.get(wanted, done)


def _turn_over(cluster: SimCluster, rng: random.Random, pages: int) -> None:
    """Picks some pages; evicts each where a random node holds it, or else sets it there."""
    nodes = cluster.setters()
    for digest in rng.sample(PAGES, pages if nodes else 0):
        node = rng.choice(nodes)
        if digest in node.engine.pool:
            node.evict(digest)
        else:
            node.set_page(digest)


def _size(seed: int, rng: random.Random, least: int = 3) -> int:
    size = rng.randint(least, 6)
    if seed % LARGE_EVERY == LARGE_EVERY - 1:
        return rng.randint(*LARGE)
    return rng.randint(*WIDE) if seed % WIDE_EVERY == WIDE_EVERY - 1 else size


def members(seed: int, size: int = 0) -> Members:
    if seed % LARGE_EVERY == LARGE_EVERY - 1:
        size = size or random.Random(seed).randint(*LARGE)
    return chaos(seed, size=size)


def pages(seed: int, size: int = 0) -> SimCluster:
    rng = random.Random(seed)
    size = size or _size(seed, rng)
    with SimCluster(
        seed,
        size,
        heads=rng.randint(1, 3),
        max_masters=rng.randint(1, 3),
        drop=rng.choice([0.0, 0.02, 0.1]),
        double=rng.choice([0.0, 0.1]),
        delay_s=rng.choice([0.01, 0.1, 0.5]),
        holders=holders_of(size),
    ) as cluster:
        _pages(cluster, rng)
    return cluster


def _pages(cluster: SimCluster, rng: random.Random) -> None:
    reader = Reader(cluster, 1.0, lambda node: False)

    def step() -> None:
        for _ in range(rng.randint(1, 6)):
            _turn_over(cluster, rng, rng.randint(1, 3))
            cluster.run(rng.expovariate(3.0))

    members_trouble(cluster, rng, 25, step)
    reader.stopped = True
    assert reader.reads
    cluster.run(4 * TTL_S)
    cluster.check_quiet()


def _calm(seed: int, size: int, rng: random.Random, heads: int) -> SimCluster:
    return SimCluster(
        seed,
        size,
        heads=heads,
        drop=rng.choice([0.0, 0.01]),
        double=rng.choice([0.0, 0.1]),
        delay_s=rng.choice([0.002, 0.02, 0.05]),
        holders=holders_of(size),
    )


def _form(cluster: SimCluster, rng: random.Random) -> None:
    cluster.until_agreed(30.0)
    cluster.run(2.0)
    for digest in PAGES:
        for node in rng.sample(cluster.setters(), rng.choice([1, 1, 1, 2])):
            node.set_page(digest)
    cluster.run(2.0)


def planned(seed: int, size: int = 0) -> SimCluster:
    rng = random.Random(seed)
    size = size or _size(seed, rng)
    with _calm(seed, size, rng, rng.randint(1, 2)) as cluster:
        _form(cluster, rng)
        _planned(cluster, rng)
    return cluster


def _planned(cluster: SimCluster, rng: random.Random) -> None:
    cluster.dead_are_known_s = LEAVERS_ARE_KNOWN_S
    reader = Reader(cluster, 0.05, lambda node: True)
    for change in range(rng.randint(2, PLANNED_MAX)):
        up = [name for name in cluster.nodes if cluster.holds(name)]
        if len(up) > 2 and rng.random() < 0.6:
            name = rng.choice(up)
            cluster.leave(name, drain=True)
            while name in cluster.nodes:
                cluster.run(0.5)
            if name in cluster.heads or rng.random() < 0.6:
                cluster.run(rng.choice([0.0, 0.1, 3.0]))
                cluster.start(name)
        else:
            cluster.start(f"x{change}")
        # The next change may begin before this one is complete.
        cluster.run(rng.choice([0.05, 0.5, 3.0]))
        _turn_over(cluster, rng, 3)
        assert not reader.missed, "\n".join(reader.missed)
    cluster.run(3.0)
    reader.stopped = True
    cluster.run(TTL_S)
    assert not reader.missed, "\n".join(reader.missed)
    assert reader.reads > 20
    cluster.check_quiet()


def hung(seed: int, size: int = 0) -> SimCluster:
    rng = random.Random(seed)
    heads = rng.randint(1, 3)
    with _calm(seed, size or _size(seed, rng, 4), rng, heads) as cluster:
        _form(cluster, rng)
        _hung(cluster, rng)
    return cluster


def _hung(cluster: SimCluster, rng: random.Random) -> None:
    masters = cluster.names[:3]
    victim = cluster.nodes[rng.choice(masters)]
    others = [name for name in cluster.names if name != victim.name]
    reader = Reader(cluster, 0.2, lambda node: node is not victim)

    def somebody_else_is_out() -> bool:
        views = {id(view): view for view in (cluster.nodes[name].view for name in others)}
        return any(name not in view.by_id for view in views.values() for name in others)

    def nobody_else_goes(seconds: float) -> None:
        until = cluster.net.now + seconds
        while cluster.net.now < until:
            cluster.run(0.25)
            assert not somebody_else_is_out(), f"{victim.name} hangs and others are thrown out"

    for _ in range(rng.randint(1, 2)):
        before = cluster.changes
        victim.hung = True
        nobody_else_goes(rng.choice([0.5, 1.0, 3.0]) * TTL_S)
        victim.resume()
        nobody_else_goes(TTL_S)
        # The victim is removed and returns. Each change makes one view for each node, or two if two
        # masters noticed at once.
        assert cluster.changes - before <= 6 * len(cluster.nodes), "views change again and again"
        assert not reader.missed, "\n".join(reader.missed)
    reader.stopped = True
    cluster.until_agreed(4 * TTL_S)
    cluster.run(2 * TTL_S)
    assert reader.reads
    cluster.check_quiet()


def parted(seed: int, size: int = 0) -> SimCluster:
    rng = random.Random(seed)
    with _calm(seed, size or _size(seed, rng, 4), rng, rng.randint(1, 3)) as cluster:
        _form(cluster, rng)
        _parted(cluster, rng)
    return cluster


def _parted(cluster: SimCluster, rng: random.Random) -> None:
    names = list(cluster.names)
    one = set(rng.sample(names, rng.randint(1, len(names) - 1)))
    other = set(names) - one
    cluster.cut(sorted(one), sorted(other))
    readers = [Reader(cluster, 0.05, one_of(part)) for part in (one, other)]
    led = [any(name in part for name in names[:3]) for part in (one, other)]

    def misses_nothing(seconds: float, who: list[Reader]) -> None:
        cluster.run(seconds)
        for reader in who:
            assert not reader.missed, "\n".join(reader.missed)

    cluster.run(PARTED_S)
    for reader in readers:
        reader.forget()
    # A part with a master has found the others dead. Another must make masters first.
    misses_nothing(TAKEN_OVER_S - PARTED_S, [r for r, has in zip(readers, led, strict=True) if has])
    for reader in readers:
        reader.forget()
    misses_nothing(TTL_S, readers)
    cluster.net.cuts.clear()
    cluster.until_agreed(3 * TTL_S)
    misses_nothing(TTL_S, readers)
    readers.append(Reader(cluster, 0.05, lambda node: True))
    misses_nothing(TTL_S, readers)
    for reader in readers:
        reader.stopped = True
    cluster.run(2.0)
    cluster.check_quiet()


def one_of(names: set[str]) -> Callable[[SimNode], bool]:
    return lambda node: node.name in names


KINDS: dict[str, Callable[..., Members | SimCluster | logs.Logs]] = {
    "members": members,
    "pages": pages,
    "planned": planned,
    "hung": hung,
    "parted": parted,
    "removed": removals.removed,
    "logs": logs.play,
}


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["--seed"]:
        print(KINDS[arguments[1]](int(arguments[2])).describe())
        return
    seeds = int(arguments[0]) if arguments else 1000
    failed = 0
    for kind, story in KINDS.items():
        began = time.monotonic()
        for seed in range(seeds):
            try:
                story(seed)
            except Exception as error:
                failed += 1
                wrong = f"{type(error).__name__}: {error}".removeprefix("AssertionError: ")
                print(f"--seed {kind} {seed}: {wrong}", flush=True)
        print(f"{kind}: {seeds} stories, {time.monotonic() - began:.0f} s", flush=True)
    print(f"{failed} failed")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main(sys.argv[1:])
