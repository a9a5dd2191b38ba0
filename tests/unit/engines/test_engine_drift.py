"""The adapters fit the recorded releases of their engines, and a release that differs is seen."""

from pathlib import Path

import pytest
from engines import matrix, record, rules, touched
from engines.drift import differences
from engines.signatures import COMPILED, MODULE, VALUE, Gone, Source

from peercache_client.engine_fit import TESTED


@pytest.mark.parametrize("engine", record.ENGINES)
def test_the_pinned_release_is_recorded_and_the_adapter_fits_it(engine: str) -> None:
    pinned, recorded = matrix.pinned(engine), record.read(engine)
    assert recorded.version == pinned, f"tools/engine_drift {engine} {pinned} --record"
    assert pinned in TESTED[engine]
    assert rules.broken(engine, recorded) == []
    assert touched.adapters(engine), "nothing would be compared"


def with_member(name: str, text: str | None) -> record.Record:
    """The recorded vLLM, with another text of one member; None: without it."""
    recorded = record.read("vllm")
    owner, _, member = name.rpartition(".")
    members = recorded.members(owner) | ({} if text is None else {member: text})
    if text is None:
        del members[member]
    return record.Record("next", recorded.names | {owner: members})


TIER = "vllm.v1.kv_offload.tiering.base.SecondaryTierManager"


@pytest.mark.parametrize(
    ("member", "text", "broken", "differs"),
    [
        ("tags", "abstractmethod (self) -> Tags", "abstract  SecondaryTierManager.tags", "new"),
        ("tags", "(self) -> Tags", "no answer SecondaryTierManager.tags", "new"),
        ("touch", None, f"answered  {TIER}.touch is gone", "gone"),
        ("submit_load", "(self, job_metadata, soon)", "PeerCacheTier takes no soon", "changed"),
        ("submit_load", "(self, job)", "PeerCacheTier would get job for job_metadata", "changed"),
        ("submit_load", "(self)", "PeerCacheTier needs job_metadata", "changed"),
        ("submit_load", "(self, job_metadata, *, soon=1)", "takes no soon", "changed"),
        ("submit_load", "(self, job_metadata: Job)", "", "changed"),
    ],
)
def test_what_differs_is_named(member: str, text: str | None, broken: str, differs: str) -> None:
    now = with_member(f"{TIER}.{member}", text)
    lines = rules.broken("vllm", now)
    assert (len(lines) == 1 and broken in lines[0]) if broken else not lines, lines
    (line,) = differences(record.read("vllm"), now)
    assert line.startswith(differs) and f"{TIER}.{member}" in line


def test_a_name_that_an_adapter_imports_and_a_release_lacks_is_named() -> None:
    recorded = record.read("vllm")
    names = {name: text for name, text in recorded.names.items() if "JobResult" not in name}
    lines = rules.broken("vllm", record.Record("next", names))
    assert lines == ["lacks     vllm.v1.kv_offload.tiering.base.JobResult"]


PACKAGE = {
    "__init__.py": """
from .api import Kind as Sort
import os
try:
    X = 1
except E:
    pass
""",
    "api.py": """
from pkg.base import Base
if True:
    class Kind(Base):
        a: int
        b: str = "x"
        c = d = 1
        _private = 1
        def two(self, x: int = 3, *, y) -> None: ...
        @property
        def three(self): ...
""",
    "base.py": """
import abc
class Base(abc.ABC):
    @abc.abstractmethod
    def one(self): ...
    def two(self): ...
    def __init__(self, z): ...
def free(a, *b, **c): ...
""",
    "fast.cpython-311-x86_64-linux-gnu.so": "",
}


def test_signatures_are_read_from_source_with_those_of_bases_and_through_imports(
    tmp_path: Path,
) -> None:
    (tmp_path / "pkg").mkdir()
    for name, text in PACKAGE.items():
        (tmp_path / "pkg" / name).write_text(text)
    source = Source(tmp_path)
    assert source.describe("pkg.Sort") == {
        "a": "int",
        "b": "str = ...",
        "c": VALUE,
        "d": VALUE,
        "one": "abstractmethod (self)",
        "two": "(self, x: int=3, *, y) -> None",
        "three": "property (self)",
        "__init__": "(self, z)",
    }
    assert source.describe("pkg.Sort.two").endswith("-> None")
    assert source.describe("pkg.base.free") == "(a, *b, **c)"
    assert source.describe("pkg.X") == VALUE
    assert source.describe("pkg.api") == MODULE
    assert source.describe("pkg.fast.Thing") == COMPILED
    for gone in ("pkg.Y", "pkg.api.Kind.four", "other"):
        with pytest.raises(Gone, match=gone):
            source.describe(gone)
