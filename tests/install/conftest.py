"""The packages that `make dist` made. Without them, tests that install them are skipped."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness.pythons import ROOT, pythons, version_of, wheel_for

from peercached import __version__


@pytest.fixture(scope="session", params=pythons())
def python(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def wheel(python: str) -> Path:
    try:
        return wheel_for(version_of(python))
    except FileNotFoundError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def client_wheel(python: str) -> Path:
    try:
        return wheel_for(version_of(python), name="peercache_client")
    except FileNotFoundError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def sdist() -> Path:
    found = ROOT / "dist" / f"peercached-{__version__}.tar.gz"
    if not found.exists():
        pytest.skip("there is no source distribution in dist/: run `make dist`")
    return found
