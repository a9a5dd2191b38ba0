"""Programs that close all descriptors by number, or copy objects that own descriptors."""

import copy
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from harness.clock import seconds
from harness.ipc_stand_in import IpcStandIn

from peercache_client import AsyncClient, Client, Status

# Runs in its own process, because it closes every open descriptor.
CLOSES_ALL = """
import logging, os, sys
from pathlib import Path
from peercache_client import Client, Status

logging.getLogger("peercache_client").addHandler(logging.NullHandler())
path, victims = sys.argv[1], Path(sys.argv[2])
client = Client(path, "space", timeout_s=10)
region = client.alloc(1 << 16)
region.view[:4] = b"page"
assert all(client.batch_set(["k"], region, [0], 4))
assert client.set("plain", b"x" * 1000)
os.closerange(3, 256)
files = [open(victims / str(i), "w+b") for i in range(64)]
for each in files:
    each.write(b"mine")
    each.flush()
# With its last connection the daemon has forgotten the region, and there is no way to pass it on.
assert client.batch_get(["k"], region, [100], 4) == [Status.bad_region]
for _ in range(3):
    assert client.get("plain", 1000) == b"x" * 1000
region.close()
other = client.alloc(4096)
assert client.batch_get(["k"], other, [0], 4) == [Status.ok]
client.close()
del client, region, other
for each in files:
    assert os.fstat(each.fileno()).st_size == 4
    each.seek(0)
    assert each.read() == b"mine"
    each.close()
"""


def test_a_program_that_closes_all_descriptors_loses_none_of_its_own_files(tmp_path: Path) -> None:
    victims = tmp_path / "victims"
    victims.mkdir()
    with IpcStandIn(tmp_path / "d.sock") as daemon:
        done = subprocess.run(
            [sys.executable, "-X", "dev", "-W", "error", "-c", CLOSES_ALL,
             str(daemon.path), str(victims)],
            capture_output=True, text=True, timeout=seconds(60), check=False,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_nothing_that_owns_descriptors_is_copied(tmp_path: Path) -> None:
    with IpcStandIn(tmp_path / "d.sock") as daemon, Client(daemon.path, "space") as client:
        region = client.alloc(4096)
        region.view[:4] = b"page"
        others = [client, region, AsyncClient(daemon.path, "space")]
        for one in others:
            for make in (copy.copy, copy.deepcopy, pickle.dumps):
                with pytest.raises(TypeError, match="cannot be copied or pickled"):
                    make(one)
        with pytest.raises(TypeError):
            copy.deepcopy(region.segment)
        assert client.batch_set(["k"], region, [0], 4) == [Status.ok]
        assert os.fstat(0), "and nothing was closed"
