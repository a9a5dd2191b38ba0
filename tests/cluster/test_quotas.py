"""A namespace that sets without end, beside one that fits: it evicts only its own pages."""

from typing import Any

import pytest
from harness.fixtures import Attach, MakeCluster
from harness.pages import keys_of

from peercached.config import ConfigError, load
from peercached.demo.cluster import Daemon

PAGE = 64 << 10
QUOTA = 4 << 20


def quota(daemon: Daemon) -> dict[str, Any]:
    (found,) = daemon.status()["quotas"]
    return dict(found)


def test_a_quota_breaker_evicts_only_its_own_pages(
    make_cluster: MakeCluster, attach: Attach
) -> None:
    node = make_cluster(1, pool_size="16MiB", namespace_quotas="greedy/*=0.25")[0]
    modest = attach(node, namespace="modest")
    theirs = keys_of("modest", 64)
    assert all(modest.set(theirs))
    greedy = attach(node, namespace="greedy/one")
    ours = keys_of("greedy", 640)
    for first in range(0, len(ours), 32):
        assert all(greedy.set(ours[first : first + 32]))
        assert quota(node)["bytes"] <= QUOTA
    found = quota(node)
    assert found["namespace"] == "greedy/one"
    assert found["quota_bytes"] == QUOTA
    assert found["evictions"] >= len(ours) - QUOTA // PAGE
    assert modest.has(theirs)
    assert greedy.has(ours[-16:])
    assert not any(greedy.get(ours[:32]))

    # It holds for what is set after a clear, too.
    greedy.client.clear()
    for first in range(0, 128, 32):
        assert all(greedy.set(ours[first : first + 32]))
    assert quota(node)["bytes"] <= QUOTA
    assert modest.has(theirs)


@pytest.mark.parametrize("wrong", ["a", "a=", "a=0", "a=1.5", "=0.5", "a=b"])
def test_a_quota_that_is_none_is_a_bad_configuration(wrong: str) -> None:
    with pytest.raises(ConfigError, match="pattern=share"):
        load(options={"namespace_quotas": wrong})
