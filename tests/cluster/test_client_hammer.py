"""A program with threads, forks, signals and asyncio, while its daemon is killed and frozen."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from harness.clock import now_s, seconds
from harness.fixtures import MakeCluster
from harness.waiting import eventually

# tools/client_pythons builds other versions.
PYTHON = os.environ.get("PEERCACHED_CLIENT_PYTHON", sys.executable)
HAMMER = Path(__file__).parent.parent / "client" / "hammer.py"


@pytest.mark.parametrize(
    "length_s", [4, pytest.param(300, marks=[pytest.mark.slow, pytest.mark.timeout(1200)])]
)
def test_a_program_with_everything_gets_the_right_bytes(
    make_cluster: MakeCluster, length_s: int
) -> None:
    daemon = make_cluster(1).daemons[0]
    dice = random.Random(length_s)
    program = subprocess.Popen(
        [PYTHON, "-X", "dev", "-W", "error", str(HAMMER),
         str(daemon.socket_path), str(seconds(length_s)), "1"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONFAULTHANDLER": "1"},
    )  # fmt: skip
    began, troubles = now_s(), 0
    while program.poll() is None and now_s() - began < seconds(length_s):
        after_s = now_s() + seconds(dice.uniform(0.2, 1.5))
        eventually(lambda: program.poll() is not None or now_s() >= after_s, 20)  # noqa: B023
        troubles += 1
        if dice.random() < 0.5:
            daemon.freeze()
            after_s = now_s() + seconds(dice.uniform(0.1, 2.0))
            eventually(lambda: now_s() >= after_s, 20)  # noqa: B023
            daemon.thaw()
        else:
            daemon.kill()
            daemon.start()
        daemon.wait_ready()  # otherwise the daemon might never come up
    out, err = program.communicate(timeout=seconds(60))
    print(f"{troubles} kills and freezes: {out}")
    assert (program.returncode, err) == (0, "")
    assert " get ok" in out and " set ok" in out and " fork" in out
