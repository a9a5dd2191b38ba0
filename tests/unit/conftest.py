"""Fixtures: a stand-in daemon for most tests of the client, and a client of it."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.clock import seconds
from harness.ipc_stand_in import IpcStandIn
from hypothesis import settings

from peercache_client import Client

# No deadline for hypothesis examples: a busy machine may stall at any time.
settings.register_profile("any machine", deadline=None)
settings.register_profile("fuzz", deadline=None, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "any machine"))


@pytest.fixture(autouse=True)
def _no_variables_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("PEERCACHED_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[IpcStandIn]:
    with IpcStandIn(tmp_path / "d.sock") as stand_in:
        yield stand_in
        stand_in.go_on.set()


@pytest.fixture
def client(daemon: IpcStandIn) -> Iterator[Client]:
    with Client(daemon.path, "space", timeout_s=seconds(10)) as one:
        yield one
