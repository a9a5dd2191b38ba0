"""One minute of the soak test, or ten minutes of it among the slow tests."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest
from harness.fixtures import MakeCluster
from harness.netns import Network, reason_to_skip
from harness.warm_pools import PoolFiles
from soak.chaos import Chaos, names_of


def passed(chaos: Chaos, minutes: float, network: Network | None, **how: bool) -> None:
    figures = chaos.run(60 * minutes, network, **how)
    print("\n".join(figures.lines()))
    assert not figures.faults(), "\n".join(chaos.said[:10])
    assert figures.reads and figures.removals


@pytest.mark.parametrize("minutes", [0.3, pytest.param(10, marks=pytest.mark.slow)])
def test_random_faults_cause_no_wrong_stale_late_or_leaked_pages(
    make_cluster: MakeCluster, pool_files: PoolFiles, tmp_path: Path, minutes: float
) -> None:
    chaos = Chaos(make_cluster, pool_files.options(4), tmp_path, 7)
    with nullcontext() if reason_to_skip() else Network("abcd") as network:
        passed(chaos, minutes, network)


@pytest.mark.parametrize(
    ("nodes", "minutes"), [(5, 0.1), pytest.param(8, 5, marks=pytest.mark.slow)]
)
def test_simultaneous_faults_cause_no_wrong_stale_late_or_leaked_pages(
    make_cluster: MakeCluster, pool_files: PoolFiles, tmp_path: Path, nodes: int, minutes: float
) -> None:
    if reason := reason_to_skip():
        pytest.skip(reason)
    chaos = Chaos(make_cluster, pool_files.options(nodes), tmp_path, 7)
    with Network(names_of(nodes)) as network:
        passed(chaos, minutes, network, only_many_at_once=True)
