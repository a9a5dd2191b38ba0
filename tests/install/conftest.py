"""The packages that `make dist` made. Without them, tests that install them are skipped."""

from __future__ import annotations

from pathlib import Path

import pytest

from peercached import __version__

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def wheel() -> Path:
    found = sorted((ROOT / "dist").glob(f"peercached-{__version__}-*.whl"))
    if not found:
        pytest.skip("there is no wheel of this version in dist/: run `make dist`")
    return max(found, key=lambda path: path.stat().st_mtime)


@pytest.fixture(scope="session")
def sdist() -> Path:
    found = ROOT / "dist" / f"peercached-{__version__}.tar.gz"
    if not found.exists():
        pytest.skip("there is no source distribution in dist/: run `make dist`")
    return found
