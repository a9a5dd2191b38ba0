"""Tests with the real SGLang, on a CPU: `make test-sglang`. Skipped where there is none.

The types of this file are not checked (pyproject.toml); those of fixtures.py are.
"""

from fixtures import collect_ignore_glob, compiled_page_hash, make_node, nodes

__all__ = ["collect_ignore_glob", "compiled_page_hash", "make_node", "nodes"]
