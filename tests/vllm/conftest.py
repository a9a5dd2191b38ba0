"""Tests with the real vLLM, on a CPU: `make test-vllm`. Skipped without vLLM.

Types are not checked in this file (pyproject.toml), but they are in vllm_fixtures.py.
"""

from vllm_fixtures import collect_ignore_glob, make_node, nodes, one_daemon, stand_in

__all__ = ["collect_ignore_glob", "make_node", "nodes", "one_daemon", "stand_in"]
