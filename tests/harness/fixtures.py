"""The types of the fixtures in tests/cluster/conftest.py, for the tests' signatures."""

from collections.abc import Callable

from harness.pages import Pages
from peercached.demo.cluster import Cluster

MakeCluster = Callable[..., Cluster]
Attach = Callable[..., Pages]
