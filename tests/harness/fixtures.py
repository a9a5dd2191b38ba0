"""What fixtures share: the daemons' options, and types for the tests' signatures."""

from collections.abc import Callable

from harness.pages import Pages
from peercached.demo.cluster import Cluster

MakeCluster = Callable[..., Cluster]
Attach = Callable[..., Pages]

# Deaths are noticed within a second or two, so that tests need not wait for long.
FAST: dict[str, str | int | float] = {
    "heartbeat-interval-s": 0.25,
    "member-ttl-s": 1.5,
    "pool-size": "64MiB",
    "directory-capacity": 100_000,
}
