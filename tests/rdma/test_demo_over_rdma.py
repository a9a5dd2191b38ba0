"""A small `make demo` over RDMA."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rdma.rdma_devices import devices

TESTS = Path(__file__).parents[1]


@pytest.mark.slow
def test_daemons_on_separate_devices_share_pages_over_rdma() -> None:
    command = [sys.executable, "-m", "demo", "--json", "--requests=60", "--page-kib=64"]
    command += ["--protocol=rdma", f"--devices={','.join(devices()[:3])}", "--heartbeat-s=1.5"]
    command += ["--pool-mib=16"]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        cwd=TESTS.parent,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads(done.stdout)
    assert (summary["wrong_pages"], summary["errors"]) == (0, [])
    assert summary["get_remote"] > 0
    moved = summary["between_daemons_bytes"]
    assert set(moved) == {"rdma"}
    assert moved["rdma"] > summary["page_bytes"] * 100
