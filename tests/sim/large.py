"""Runs one story of each kind in large clusters, checks its invariants and prints its cost.

    make sim-large ARGS="300 1000 2000"
    make sim-large ARGS="1000 planned hung"

From 150 nodes on, only 30 of them may hold pages and are followed; from 1500 on, only 15. All
others are members, masters, owners and readers (sim/sample.py).
"""

from __future__ import annotations

import gc
import resource
import sys
import time
from collections import OrderedDict
from unittest import mock

from peercached.membership.updates import History, ViewUpdate
from peercached.membership.view import View
from sim import stories
from sim.logs import Logs

SEED = 1
VIEWS_SHARED = 64


def shared_views() -> mock._patch[object]:
    """Lets all nodes share equal views in memory. Each node builds its own copy of the same views.
    For 2000 nodes with 32 views of 2000 members each, that would take many GB."""
    plain = History.resolve
    known: OrderedDict[int, View] = OrderedDict()

    def resolve(history: History, update: ViewUpdate) -> View | None:
        if update.base and update.base not in history._views:
            return None
        view = known.get(update.number) or plain(history, update)
        if view is not None:
            known[update.number] = view
            while len(known) > VIEWS_SHARED:
                known.popitem(last=False)
        return view

    return mock.patch.object(History, "resolve", resolve)


def tell(kind: str, size: int) -> None:
    began = time.process_time()
    with shared_views():
        cluster = stories.KINDS[kind](SEED, size)
    assert not isinstance(cluster, Logs)
    memory_gb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2
    print(
        f"{kind:>8} {size:5} nodes: {cluster.net.now:6.0f} s of theirs, "
        f"{cluster.changes} views taken, {cluster.net.messages} messages, "
        f"{time.process_time() - began:.0f} s of processor, {memory_gb:.1f} GB",
        flush=True,
    )


def main(arguments: list[str]) -> None:
    # Nearly all objects live as long as the cluster. A full garbage collection would take longer
    # than the story.
    gc.set_threshold(100_000, 50, 1000)
    of_daemons = [kind for kind in stories.KINDS if kind != "logs"]
    kinds = [kind for kind in arguments if kind in stories.KINDS] or of_daemons
    for size in [int(size) for size in arguments if size.isdigit()] or [300]:
        for kind in kinds:
            tell(kind, size)
            gc.collect()


if __name__ == "__main__":
    main(sys.argv[1:])
