"""A minute of the soak, or ten of it among the slow tests."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest
from harness.fixtures import MakeCluster
from harness.netns import Network, reason_to_skip
from harness.warm_pools import PoolFiles
from soak.chaos import NODES, Chaos


@pytest.mark.parametrize("minutes", [0.3, pytest.param(10, marks=pytest.mark.slow)])
def test_whatever_befalls_nothing_is_wrong_old_late_or_left(
    make_cluster: MakeCluster, pool_files: PoolFiles, tmp_path: Path, minutes: float
) -> None:
    with ExitStack() as stack:
        network = None if reason_to_skip() else Network(NODES)
        if network is not None:
            stack.callback(network.remove)
        chaos = Chaos(make_cluster, pool_files.options(len(NODES)), tmp_path, 7)
        figures = chaos.run(60 * minutes, network)
        print("\n".join(figures.lines()))
        assert not figures.faults(), "\n".join(chaos.said[:10])
        assert figures.reads and figures.removals
