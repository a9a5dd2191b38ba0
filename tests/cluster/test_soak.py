"""One minute of the soak test, or ten minutes of it among the slow tests."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest
from harness.fixtures import MakeCluster
from harness.netns import Network, reason_to_skip
from harness.warm_pools import PoolFiles
from soak.chaos import Chaos, names_of

# The short variants share the machine with other tests.
PAUSE_S = 0.05


def passed(
    chaos: Chaos, minutes: float, network: Network | None, faults: Sequence[str] = ()
) -> None:
    figures = chaos.run(60 * minutes, network, faults)
    print("\n".join(figures.lines()))
    assert not figures.faults(), "\n".join(chaos.said[:10])
    assert figures.reads and figures.removals


@pytest.mark.parametrize(
    ("minutes", "pause_s"), [(0.15, PAUSE_S), pytest.param(10, 0.0, marks=pytest.mark.slow)]
)
def test_random_faults_cause_no_wrong_stale_late_or_leaked_pages(
    make_cluster: MakeCluster, pool_files: PoolFiles, tmp_path: Path, minutes: float, pause_s: float
) -> None:
    chaos = Chaos(make_cluster, pool_files.options(4), tmp_path, 7, pause_s)
    with nullcontext() if reason_to_skip() else Network("abcd") as network:
        passed(chaos, minutes, network)


@pytest.mark.parametrize(
    ("nodes", "minutes", "pause_s"),
    [(5, 0.06, PAUSE_S), pytest.param(8, 5, 0.0, marks=pytest.mark.slow)],
)
def test_simultaneous_faults_cause_no_wrong_stale_late_or_leaked_pages(
    make_cluster: MakeCluster,
    pool_files: PoolFiles,
    tmp_path: Path,
    nodes: int,
    minutes: float,
    pause_s: float,
) -> None:
    if reason := reason_to_skip():
        pytest.skip(reason)
    chaos = Chaos(make_cluster, pool_files.options(nodes), tmp_path, 7, pause_s)
    with Network(names_of(nodes)) as network:
        passed(chaos, minutes, network, ["many_at_once"])


@pytest.mark.slow
def test_killed_nodes_cost_only_their_own_pages(
    make_cluster: MakeCluster, pool_files: PoolFiles, tmp_path: Path
) -> None:
    """Kills in the middle of removals, with hardly a pause between them."""
    chaos = Chaos(make_cluster, pool_files.options(6), tmp_path, 7, 0.0)
    passed(chaos, 0.2, None, ["kill"])
