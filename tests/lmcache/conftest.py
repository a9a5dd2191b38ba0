"""Tests with the real LMCache, on a CPU: `make test-lmcache`. Skipped without LMCache.

Types are not checked in this file (pyproject.toml), but they are in lmcache_fixtures.py.
"""

from lmcache_fixtures import collect_ignore_glob, make_node, nodes, one_daemon, stand_in

__all__ = ["collect_ignore_glob", "make_node", "nodes", "one_daemon", "stand_in"]
