"""A small `make demo`."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from harness.clock import seconds

TESTS = Path(__file__).parents[1]


def demo(*options: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "demo", "--json", *options],
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds(100),
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        cwd=TESTS.parent,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    summary: dict[str, Any] = json.loads(done.stdout)
    assert summary["wrong_pages"] == 0
    assert summary["errors"] == []
    return summary


def test_pools_that_hold_everything_reach_the_best_hit_rate_possible() -> None:
    summary = demo("--requests=120", "--page-kib=16", "--pool-mib=64")
    assert summary["evictions"] == 0
    assert summary["hit_rate"] == summary["best_hit_rate_infinite"] > 0.5
    assert summary["decode_hit_rate"] == 1.0
    assert summary["get_remote"] > 0


def test_small_pools_evict_and_stay_right() -> None:
    summary = demo("--requests=120", "--page-kib=16", "--pool-mib=4")
    assert summary["evictions"] > 0
    assert 0 < summary["hit_rate"] <= summary["best_hit_rate_infinite"]


@pytest.mark.slow
def test_faults_cost_hits_and_never_bytes() -> None:
    plan = "seed=3,corrupt=0.02,drop=0.02,truncate=0.02,reset=0.01"
    summary = demo("--requests=120", "--page-kib=16", f"--faults={plan}")
    assert summary["stale_retries"] > 0
    assert 0 < summary["hit_rate"] < summary["best_hit_rate_infinite"]


def test_a_killed_daemon_costs_hits_and_returns() -> None:
    summary = demo("--requests=600", "--page-kib=16", "--kill")
    before, dead, back = summary["phases"]
    assert [phase["name"] for phase in (before, dead, back)] == ["before", "b dead", "b back"]
    # The rate is not 0, because the daemon runs for a moment before it is a member again.
    assert dead["hit_rate_by_node"]["b"] < before["hit_rate_by_node"]["b"]
    for phase in (before, dead, back):
        assert phase["hit_rate_by_node"]["a"] > 0
        assert phase["hit_rate_by_node"]["c"] > 0
    assert "no_daemon" in dead["not_set"]
    assert back["hit_rate_by_node"]["b"] > 0


def test_daemons_that_lose_everything_find_the_pages_of_the_store(tmp_path: Path) -> None:
    store = f"--cold=file://{tmp_path}/store"
    summary = demo("--requests=300", "--page-kib=16", "--pool-mib=4", "--rate=60", store)
    assert [phase["name"] for phase in summary["phases"]] == ["before", "from nothing"]
    assert summary["from_store"] > 0 and summary["phases"][1]["hit_rate"] > 0


@pytest.mark.parametrize("packed", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_trace_is_replayed(tmp_path: Path, packed: bool) -> None:
    lines = [
        {
            "timestamp": n,
            "input_length": 1500,
            "output_length": 9,
            "hash_ids": [0, n % 7 + 1, n + 8],
        }
        for n in range(60)
    ]
    text = "\n".join(json.dumps(line) for line in lines).encode()
    trace = tmp_path / ("trace.jsonl.gz" if packed else "trace.jsonl")
    trace.write_bytes(gzip.compress(text) if packed else text)
    summary = demo(f"--trace={trace}", "--page-kib=16", *(["--requests=40"] if packed else []))
    assert summary["requests"] == (40 if packed else 60)
    assert summary["hit_rate"] == summary["best_hit_rate_infinite"]
