"""Tests with the real SGLang, on a CPU: `make test-sglang`. Skipped without SGLang.

Types are not checked in this file (pyproject.toml), but they are in fixtures.py.
"""

from fixtures import (
    collect_ignore_glob,
    compiled_page_hash,
    make_linker,
    make_node,
    nodes,
    patient_lookups,
    pytest_collection_modifyitems,
)

__all__ = [
    "collect_ignore_glob",
    "compiled_page_hash",
    "make_linker",
    "make_node",
    "nodes",
    "patient_lookups",
    "pytest_collection_modifyitems",
]
