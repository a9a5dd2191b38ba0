"""A test that failed while the machine stood still is repeated, unless it found wrong bytes."""

import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[2]

EXAMPLES = """
import os, signal, subprocess
import pytest

tries = {"still": 0, "wrong bytes": 0, "alone": 0}

@pytest.mark.parametrize("name", tries)
def test_first_try_fails(name):
    tries[name] += 1
    if tries[name] == 1:
        if name != "alone":
            subprocess.Popen(["sh", "-c", f"sleep 6; kill -CONT {os.getpid()}"])
            os.kill(os.getpid(), signal.SIGSTOP)
        pytest.fail(name)
"""


def test_a_machine_that_stands_still_is_not_judged(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text((TESTS / "conftest.py").read_text())
    (tmp_path / "test_examples.py").write_text(EXAMPLES)
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-rA", "-p", "no:cacheprovider", "--rootdir", tmp_path],
        cwd=tmp_path,
        env={"PYTHONPATH": str(TESTS), "TEST_PACE": "4"},
        stdout=subprocess.PIPE,
        text=True,
        timeout=120,
        check=False,
    )
    assert "2 failed, 1 passed, 1 rerun" in run.stdout, run.stdout
    assert "FAILED test_examples.py::test_first_try_fails[wrong bytes]" in run.stdout
    assert "FAILED test_examples.py::test_first_try_fails[alone]" in run.stdout
