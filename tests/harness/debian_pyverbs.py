"""Makes Debian's pyverbs importable, and nothing else of Debian's Python packages.

pyverbs is not on PyPI: it is built together with libibverbs and must match it. Debian's package
python3-pyverbs is for Debian's own python3. A virtual environment of the same minor version can
load its extension modules.
"""

import importlib.machinery
import importlib.util
import sys
from pathlib import Path

_FOLDER = Path("/usr/lib/python3/dist-packages/pyverbs")


def make_importable() -> None:
    """Makes `import pyverbs` work. If it cannot, RuntimeError says what to do."""
    if "pyverbs" in sys.modules or importlib.util.find_spec("pyverbs"):
        return
    if not _FOLDER.exists():
        raise RuntimeError(f"{_FOLDER} is missing: tools/bootstrap --rdma")
    if not any((_FOLDER / f"qp{end}").exists() for end in importlib.machinery.EXTENSION_SUFFIXES):
        built_for = ", ".join(sorted(path.name for path in _FOLDER.glob("qp.*.so")))
        raise RuntimeError(
            f"Python {sys.version.split()[0]} cannot load Debian's pyverbs ({built_for}): "
            "make the virtual environment with Debian's python3"
        )
    spec = importlib.util.spec_from_file_location(
        "pyverbs", _FOLDER / "__init__.py", submodule_search_locations=[str(_FOLDER)]
    )
    assert spec is not None and spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules["pyverbs"] = package
    spec.loader.exec_module(package)
