"""Hit rates of one pool by its size: the native pool, plain LRU, and the best that is possible.

    make bench-hit-rate                      made-up conversations (demo/workload.py)
    make bench-hit-rate ARGS=FILE.jsonl.gz   a trace in Mooncake's format

Sizes are shares of all different blocks. Prints a table for each sequence of requests, stores the
figures in docs/hit-rate.json and plots them in docs/hit-rate.svg. Also says what the simulation of
`peercachectl simulate` finds: it should agree with the native pool.
"""

# /// script
# dependencies = ["matplotlib>=3.8"]
# [tool.peercached]
# build = ["pool_replay"]
# ///

from __future__ import annotations

import array
import json
import subprocess
import sys
from collections import OrderedDict
from itertools import islice
from pathlib import Path
from typing import Any

from bench.figures import DOCS
from demo.belady import best_hits
from demo.workload import Conversations, Request
from peercached.sizing.simulation import Cluster, replay
from peercached.sizing.trace import read_trace

FIGURES, PLOT = DOCS / "hit-rate.json", DOCS / "hit-rate.svg"
REPLAY = Path(__file__).resolve().parents[2] / "build/native/pool_replay"
SHARES = (0.02, 0.05, 0.1, 0.2, 0.4)
CONVERSATION_REQUESTS = 12_000

Chains = list[tuple[int, ...]]


def native(chains: Chains, blocks: int) -> int:
    """Blocks found by the daemon's pool."""
    words = array.array("I")
    for chain in chains:
        words.append(len(chain))
        words.extend(chain)
    ran = subprocess.run(
        [str(REPLAY), str(blocks)], input=words.tobytes(), stdout=subprocess.PIPE, check=True
    )
    return int(ran.stdout.split()[0])


def lru(chains: Chains, blocks: int) -> int:
    """Blocks found by a pool that evicts the block used longest ago, and chains from their end."""
    pool: OrderedDict[int, None] = OrderedDict()
    found = 0
    for chain in chains:
        prefix = next((at for at, block in enumerate(chain) if block not in pool), len(chain))
        found += prefix
        for block in reversed(chain):
            pool[block] = None
            pool.move_to_end(block)
        while len(pool) > blocks:
            pool.popitem(last=False)
    return found


def simulated(chains: Chains, blocks: int) -> int:
    cluster = Cluster(1, blocks)
    replay(chains, [cluster])
    return cluster.found.here


def best(chains: Chains, blocks: int) -> int:
    return best_hits([Request(chain) for chain in chains], blocks)


POLICIES = {"lru": lru, "native": native, "simulated": simulated, "best": best}


def conversations() -> Chains:
    """Prompts of the demo. An answer is part of the next prompt of its conversation."""
    found: Chains = []
    for request in islice(Conversations().requests(), CONVERSATION_REQUESTS):
        found.append(request.chain)
        found.append(request.chain + request.answer)
    return found


def measure(chains: Chains) -> dict[str, dict[str, float]]:
    asked = sum(map(len, chains))
    longest = max(map(len, chains))
    different = len({block for chain in chains for block in chain})
    print(f"{len(chains):,} requests, {asked:,} blocks, {different:,} of them different")
    print(f"{'pool':>6}" + "".join(f"{name:>12}" for name in POLICIES))
    rates: dict[str, dict[str, float]] = {}
    for share in SHARES:
        blocks = max(int(different * share), longest)
        rates[f"{share:g}"] = found = {
            name: count(chains, blocks) / asked for name, count in POLICIES.items()
        }
        print(f"{share:>6.0%}" + "".join(f"{rate:>12.1%}" for rate in found.values()), flush=True)
    return rates


def plot(figures: dict[str, dict[str, dict[str, float]]]) -> None:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "peercached"  # the same figures make the same file
    matplotlib.rcParams["svg.fonttype"] = "none"  # text stays text
    from matplotlib import pyplot

    shown, all_axes = pyplot.subplots(1, len(figures), figsize=(9, 3.4), squeeze=False)
    for axes, (name, rates) in zip(all_axes[0], figures.items(), strict=True):
        draw(axes, name, rates)
    shown.tight_layout()
    shown.savefig(PLOT, metadata={"Date": None})


def draw(axes: Any, name: str, rates: dict[str, dict[str, float]]) -> None:
    at = [100 * float(share) for share in rates]
    for policy, label in (("best", "best possible"), ("native", "the pool"), ("lru", "LRU")):
        axes.plot(at, [100 * each[policy] for each in rates.values()], marker="o", label=label)
    axes.set(title=name, xlabel="pool, % of all blocks", ylabel="blocks found, %", ylim=(0, None))
    axes.grid(alpha=0.3)
    axes.legend()


def main(trace: str = "") -> None:
    figures: dict[str, dict[str, dict[str, float]]] = (
        json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    )
    figures["made-up conversations"] = measure(conversations())
    if trace:
        chains = list(read_trace(Path(trace)))
        figures[Path(trace).name.partition(".")[0].replace("_", " ")] = measure(chains)
    rounded = {
        name: {
            share: {policy: round(rate, 4) for policy, rate in found.items()}
            for share, found in rates.items()
        }
        for name, rates in figures.items()
    }
    FIGURES.write_text(json.dumps(rounded, indent=1) + "\n")
    plot(figures)


if __name__ == "__main__":
    main(*sys.argv[1:])
