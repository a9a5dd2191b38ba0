"""An adapter meets a release of its engine that it does not know. The engine is a toy here: nobody
has the releases of tomorrow."""

import subprocess
import sys
from pathlib import Path

import pytest

ADAPTER = """
import logging
logging.basicConfig(format="%(message)s")
from peercache_client import engine_fit
engine_fit.TESTED["toy"] = ("1.1", "1.0")
with engine_fit.importing("toy", __name__):
    from toy.api import Base{more}
    class Adapter(Base):
        def get(self): ...
print("imported")
"""
API = """
from abc import ABC, abstractmethod
class Base(ABC):
    @abstractmethod
    def get(self): ...
"""
TAGS = "    @abstractmethod\n    def tags(self): ...\n"


@pytest.mark.parametrize(
    ("version", "api", "more", "code", "said"),
    [
        ("1.0", API, "", 0, ""),
        ("1.2", API, "", 0, "adapter was tested with toy 1.1, 1.0, and this is 1.2"),
        ("1.2", API + TAGS, "", 1, "adapter does not fit toy 1.2: Adapter lacks tags. Tested: toy"),
        ("1.2", API, ", Sign", 1, "adapter does not fit toy 1.2: toy lacks it: cannot import name"),
        ("1.2", "import nowhere", "", 1, "No module named 'nowhere'"),
        ("1.2", "import toy.gone", "", 1, "toy lacks it: No module named 'toy.gone'"),
    ],
    ids=["tested", "unknown", "abstract", "no name", "no other package", "no module"],
)
def test_an_adapter_works_with_what_it_does_not_know_or_names_what_is_missing(
    tmp_path: Path, version: str, api: str, more: str, code: int, said: str
) -> None:
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "__init__.py").write_text(f"__version__ = {version!r}\n")
    (tmp_path / "toy" / "api.py").write_text(api)
    (tmp_path / "adapter.py").write_text(ADAPTER.format(more=more))
    run = subprocess.run(
        [sys.executable, "-c", "import adapter"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == code
    assert run.stdout == ("imported\n" if code == 0 else "")
    assert said in run.stderr
    # A package that the engine itself lacks is no question of ours.
    assert ("Traceback" in run.stderr) == ("nowhere" in said)
    assert bool(run.stderr) == bool(said)
