# /// script
# dependencies = ["matplotlib>=3.8", "redis>=5"]
# ///
"""Where the microseconds of an exists, a get and a set go, between two nodes.

    make bench-microseconds

An exists of 128 keys that nobody has asked for, a get of a page of 128 KiB of the other node, and a
set. The picture, docs/microseconds.svg, has the means in parts:

- the client: processor time of the caller, in Python, C++ and the kernel
- the daemon here, and the other one: their processor time, beyond that of idle daemons
- waiting: all that is left. One process has been woken up and does not run yet

Below it are the limits of the same run: empty round trips and the bytes of a page.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from bench.cluster import KEYS, PAGE_BYTES, SMALL_BYTES, Usage, Workers, ping_pong_us, started
from bench.figures import DOCS, pyplot
from peercache_bench.limits import loopback_tcp_gbps, memory_gbps, unix_round_trip_us

PLOT = DOCS / "microseconds.svg"
CALLS, ROUNDS = 200, 5
IDLE_S = 3.0
LIMIT_BYTES = 256 << 20

Parts = dict[str, float]  # part -> microseconds


class Clocks:
    """The processor time of the caller and of the daemons, in the order of `pids`."""

    def __init__(self, pids: list[int]) -> None:
        self._pids = pids
        self._idle = [0.0] * len(pids)
        before = self._now()
        time.sleep(IDLE_S)
        self._idle = [spent / IDLE_S for spent in self._since(before)[2:]]

    def parts(self, call: Callable[[], object]) -> Parts:
        before = self._now()
        for _ in range(CALLS):
            call()
        took, client, *daemons = (max(spent, 0.0) / CALLS * 1e6 for spent in self._since(before))
        found = {"client": client, "daemon here": daemons[0], "other daemon": daemons[1]}
        return found | {"waiting": max(took - sum(found.values()), 0.0)}

    def _now(self) -> list[float]:
        daemons = [Usage.of([pid]).busy_s for pid in self._pids]
        return [time.perf_counter(), time.thread_time(), *daemons]

    def _since(self, before: list[float]) -> list[float]:
        took, client, *daemons = (b - a for a, b in zip(before, self._now(), strict=True))
        idle = zip(daemons, self._idle, strict=True)
        return [took, client, *(spent - share * took for spent, share in idle)]


def measure() -> dict[str, Parts]:
    rounds: list[dict[str, Parts]] = []
    with started(2) as cluster:
        workers = Workers(cluster)
        setting, asking = (daemon.pid for daemon in cluster.daemons)
        asks, sets = Clocks([asking, setting]), Clocks([setting, asking])
        for _ in range(ROUNDS):
            known = iter([workers.set(KEYS, SMALL_BYTES) for _ in range(CALLS)])
            single = iter([workers.set(1, PAGE_BYTES) for _ in range(CALLS)])
            time.sleep(1.0)  # work of these sets is still under way
            rounds.append(
                {
                    f"exists of {KEYS} keys": asks.parts(lambda: workers.exists(next(known))),  # noqa: B023
                    "get of 128 KiB": asks.parts(lambda: workers.get(next(single), PAGE_BYTES)),  # noqa: B023
                    "set of 128 KiB": sets.parts(lambda: workers.set(1, PAGE_BYTES)),
                }
            )
    return {
        what: {name: statistics.median(one[what][name] for one in rounds) for name in parts}
        for what, parts in rounds[0].items()
    }


def limits() -> str:
    page_us = PAGE_BYTES / 1e3  # divided by GB/s
    return (
        f"a round trip by Unix socket {unix_round_trip_us():.0f}, by TCP {ping_pong_us():.0f}; "
        f"128 KiB by TCP {page_us / loopback_tcp_gbps(1, LIMIT_BYTES):.0f}, "
        f"copied {page_us / memory_gbps(LIMIT_BYTES)['copy_and_checksum_128k']:.0f}"
    )


def draw(parts: dict[str, Parts], limits: str) -> None:
    plt = pyplot()

    made, axes = plt.subplots(figsize=(9, 2.8))
    rows = list(parts)
    left = [0.0] * len(rows)
    for name in ("client", "daemon here", "other daemon", "waiting"):
        widths = [parts[row][name] for row in rows]
        bars: Any = axes.barh(rows, widths, left=left, label=name)
        axes.bar_label(bars, [f"{width:.0f}" if width >= 4 else "" for width in widths],
                       label_type="center", fontsize=8)  # fmt: skip
        left = [at + width for at, width in zip(left, widths, strict=True)]
    axes.invert_yaxis()
    axes.set_xlabel(f"microseconds. Limits: {limits}", fontsize=9)
    axes.legend(fontsize=8, ncols=5, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    made.tight_layout()
    made.savefig(PLOT, metadata={"Date": None})


def main() -> None:
    parts, limit = measure(), limits()
    for what, of in parts.items():
        told = ", ".join(f"{name} {us:.0f}" for name, us in of.items())
        print(f"{what:<20}{sum(of.values()):5.0f} us: {told}")
    print(limit)
    draw(parts, limit)


if __name__ == "__main__":
    main()
