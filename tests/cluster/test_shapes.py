"""Small runs of `make bench-shapes`."""

import re

import pytest
from bench import shapes
from bench.shape import disk, stand_in
from click.testing import CliRunner

from demo.worker import Outcome
from demo.workload import Request


def test_engines_with_one_cache_reach_the_ideal_hit_rate() -> None:
    before = shapes.FIGURES.read_bytes()
    done = CliRunner().invoke(shapes.main, ["--quick", "--only", "agents"])
    assert done.exit_code == 0, done.output
    rates = re.search(r"([\d.]+)%, ideal ([\d.]+)%, alone ([\d.]+)%", done.output)
    assert rates, done.output
    found, ideal, alone = map(float, rates.groups())
    assert alone < found == ideal
    assert shapes.FIGURES.read_bytes() == before, "a quick run stores nothing"


def test_a_disk_keeps_the_hit_rate_when_the_pool_is_too_small() -> None:
    ideal = 1 - 1 / disk.ROUNDS
    without, kept = (disk.run(disk=one, smaller=16)[-1].hit_rate for one in (False, True))
    assert without < 0.6 < kept == pytest.approx(ideal)


def test_a_wrong_page_ends_the_bench() -> None:
    class Wrong:
        def do(self, chain: object, answer: object) -> Outcome:
            return Outcome(wrong_pages=1, wrong=["page 1"])

    with pytest.raises(stand_in.WrongBytes, match="page 1"):
        stand_in.replay([Request((1,))], [Wrong()])  # type: ignore[list-item]
