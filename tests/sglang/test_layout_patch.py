"""The change for SGLang in docs/ applies to the installed SGLang, and does what it says."""

import ast
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sglang.srt.managers.scheduler

PATCH = Path(__file__).parents[2] / "docs/sglang-l3-layout.patch"
SOURCE = Path(sglang.srt.managers.scheduler.__file__)


class Described:
    def describe_l3_object_layout(self, *, page_size: int, **_: Any) -> dict[str, Any]:
        return {"enabled": True, "page_size": page_size}


def layout(source: Path, store: Any) -> Any:
    """Asks this version of the scheduler, with a store of this kind attached."""
    method = next(
        node
        for node in ast.walk(ast.parse(source.read_text()))
        if isinstance(node, ast.FunctionDef) and node.name == "_hicache_l3_layout"
    )
    names: dict[str, Any] = {}
    exec(compile(ast.Module([method], []), str(source), "exec"), names)
    controller = SimpleNamespace(storage_backend=store, storage_backend_type="dynamic")
    scheduler = SimpleNamespace(
        enable_hierarchical_cache=True,
        page_size=64,
        tree_cache=SimpleNamespace(cache_controller=controller),
    )
    return names["_hicache_l3_layout"](scheduler)


@pytest.fixture
def patched(tmp_path: Path) -> Path:
    copy = tmp_path / "python/sglang/srt/managers/scheduler.py"
    copy.parent.mkdir(parents=True)
    copy.write_text(SOURCE.read_text())
    subprocess.run(["patch", "-p1", "--fuzz=0", "-d", tmp_path, "-i", PATCH], check=True)
    return copy


def test_only_with_the_patch_any_store_can_describe_its_objects(patched: Path) -> None:
    assert not layout(SOURCE, Described())["enabled"]
    assert layout(patched, Described()) == {"enabled": True, "page_size": 64}
    for store in (object(), None):
        assert not layout(patched, store)["enabled"]
