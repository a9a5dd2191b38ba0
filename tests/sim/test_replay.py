"""A failing seed replays exactly, and the runner names every failing seed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from harness.clock import seconds

from sim import stories
from sim.members import Members

TESTS = Path(__file__).parent.parent
# The `pages` seeds once depended on memory addresses, because lookups were ended in that order.
FEW = {
    "members": [3],
    "pages": [112],
    "logs": [3],
}
MANY = {
    "members": [3, 77],
    "pages": [0, 19, 25, 52, 80, 112],
    "planned": [7, 19],
    "hung": [5, 19],
    "parted": [0, 7],
    "logs": [*range(2, 12)],
}


def started(seeds_of: dict[str, list[int]], junk: int, hash_seed: int) -> subprocess.Popen[str]:
    stories = [word for kind, seeds in seeds_of.items() for s in seeds for word in (kind, str(s))]
    return subprocess.Popen(
        [sys.executable, "-m", "sim.replay", str(junk), *stories],
        env={**os.environ, "PYTHONPATH": str(TESTS), "PYTHONHASHSEED": str(hash_seed)},
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("seeds", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])
def test_a_seed_goes_the_same_way_in_every_process(seeds: dict[str, list[int]]) -> None:
    runs = [started(seeds, 0, 0), started(seeds, 70_001, 1), started(seeds, 3333, 2)]
    told = [run.communicate(timeout=seconds(500))[0].splitlines() for run in runs]
    assert [run.returncode for run in runs] == [0, 0, 0]
    assert len(told[0]) == sum(map(len, seeds.values()))
    assert told[1] == told[0]
    assert told[2] == told[0]


def test_failing_story_is_named_and_the_others_still_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told: list[int] = []

    def story(seed: int) -> Members:
        told.append(seed)
        if seed == 1:
            raise KeyError("no such node")
        assert seed != 2, "views alternate"
        return Members(seed, 1)

    monkeypatch.setattr(stories, "KINDS", {"broken": story})
    with pytest.raises(SystemExit) as end:
        stories.main(["4"])
    assert end.value.code == 1
    assert told == [0, 1, 2, 3]
    out = capsys.readouterr().out
    assert "--seed broken 1: KeyError: 'no such node'" in out
    assert "--seed broken 2: views alternate" in out
    assert "2 failed" in out
