"""Daemons and workers die, freeze and are cut off, and every byte is checked (chaos.py).

make soak ARGS="--minutes 30 --seed 1 --daemons 4 kill cut_off"     with only these faults
make soak ARGS="--cold"                      with an object store behind a proxy that fails
"""

from __future__ import annotations

import logging
import shutil
import sys
import tempfile
import time
from argparse import ArgumentParser
from contextlib import ExitStack
from pathlib import Path

from harness.fixtures import cluster_maker
from harness.netns import Network, reason_to_skip
from harness.warm_pools import some_pool_files

from soak.chaos import Chaos, names_of
from soak.store import Store


def main() -> int:
    parser = ArgumentParser(prog="make soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--daemons", type=int, default=4)
    parser.add_argument("--cold", action="store_true", help="with an object store that fails, too")
    parser.add_argument("faults", nargs="*", help="the only ones; default: all")
    given = parser.parse_args()
    minutes, seed, count, faults = given.minutes, given.seed, given.daemons, given.faults
    logging.disable(logging.WARNING)  # clients warn whenever their daemon comes or goes
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="peercached-soak-"))
    with ExitStack() as stack:
        network = None if (why := reason_to_skip()) else Network(names_of(count))
        if network is None:
            print(f"without partitions: {why}")
        else:
            stack.callback(network.remove)
        files = stack.enter_context(some_pool_files())
        defaults = {"heartbeat-interval-s": 0.25, "member-ttl-s": 1.5}
        make = cluster_maker(stack, defaults, 30.0)
        told = f"{minutes:g} minutes, seed {seed}, {count} nodes"
        print(f"{told}: figures at the end, the logs stay if it fails")
        store = Store(stack, folder, network, seed) if given.cold else None
        chaos = Chaos(make, files.options(count), folder, seed, store=store)
        try:
            figures = chaos.run(60 * minutes, network, faults)
        except BaseException:
            print(f"during {'; '.join(chaos.during[-4:])}; the daemons' logs are in {folder}")
            raise
        finally:
            for daemon in chaos.cluster.daemons:
                shutil.copy(daemon.log_path, folder)
    print(
        "\n".join([f"{(time.monotonic() - began) / 60:.0f} minutes, seed {seed}", *figures.lines()])
    )
    if store is not None:
        print(f"faults of the object store: {store.faults}")
    print("passed" if not figures.faults() else "FAILED: the figures from wrong on must be 0")
    if not figures.faults():
        shutil.rmtree(folder)
        return 0
    for (kind, fault), times in chaos.failed_during.items():
        print(f"{kind:<12}{times:>12,}  during or after {fault}")
    print("\n\n".join(chaos.said[:10]))
    print(f"the daemons' logs are in {folder}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
