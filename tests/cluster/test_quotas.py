"""A namespace that sets without end, next to one within its quota. It evicts only its own pages,
and uses no more of the disk than its quota."""

import json
from pathlib import Path
from typing import Any

import pytest
from harness.cluster import Daemon
from harness.disks import disk_of, disk_options, fill, found, wait_written
from harness.fixtures import MakeCluster
from harness.pages import keys_of
from harness.waiting import eventually

from peercache_client import Status
from peercached.admin.client import AdminClient
from peercached.config import ConfigError, load

PAGE = 64 << 10
# Disk space of a page: whole blocks, one more block, and a footer entry (docs/security.md).
PAGE_ROOM = PAGE + 4096 + 80
QUOTA = 4 << 20


def quota(daemon: Daemon) -> dict[str, Any]:
    (found,) = daemon.status()["quotas"]
    return dict(found)


def test_a_quota_breaker_evicts_only_its_own_pages(make_cluster: MakeCluster) -> None:
    node = make_cluster(1, pool_size="16MiB", namespace_quotas="greedy/*=0.25")[0]
    modest = node.attach(namespace="modest")
    theirs = keys_of("modest", 64)
    assert all(modest.set(theirs))
    greedy = node.attach(namespace="greedy/one")
    ours = keys_of("greedy", 640)
    for first in range(0, len(ours), 32):
        assert all(greedy.set(ours[first : first + 32]))
        assert quota(node)["bytes"] <= QUOTA
    now = quota(node)
    assert now["namespace"] == "greedy/one"
    assert now["quota_bytes"] == QUOTA
    assert now["evictions"] >= len(ours) - QUOTA // PAGE
    assert modest.has(theirs)
    assert greedy.has(ours[-16:])
    assert not any(greedy.get(ours[:32]))

    # The quota also applies after a clear.
    greedy.client.clear()
    for first in range(0, 128, 32):
        assert all(greedy.set(ours[first : first + 32]))
    assert quota(node)["bytes"] <= QUOTA
    assert modest.has(theirs)


def test_a_quota_of_the_disk_stops_one_namespace_and_no_other(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    (options,) = disk_options(
        tmp_path, "a", disk_size="64MiB", namespace_quotas="greedy/*=0.5:0.125"
    )
    cluster = make_cluster(1, pool_size="16MiB", each=[options])
    node = cluster[0]
    room = (8 << 20) // PAGE_ROOM
    greedy = node.attach(namespace="greedy/one")
    ours = keys_of("greedy", 2 * room)
    fill(node, greedy, ours)
    now = quota(node)
    assert (now["disk_bytes"], now["disk_quota_bytes"]) == (room * PAGE_ROOM, 8 << 20)
    assert now["disk_skipped"] == disk_of(node)["skipped_quota"] == room
    assert any(
        f"A namespace reached its disk quota: {room} pages were not written" in one["sentence"]
        for one in node.status()["health"]
    )
    modest = node.attach(namespace="modest")
    theirs = keys_of("modest", 3 * room)
    fill(node, modest, theirs)
    assert found(modest, theirs) == len(theirs)
    assert found(greedy, ours[:room]) == room, "what was written is there"

    # A restart counts the pages on disk. A clear makes room for the same amount again.
    node.kill()
    cluster.start_again(node)
    greedy = node.attach(namespace="greedy/one")
    assert all(greedy.set(ours[room : room + 16]))
    wait_written(node)
    assert quota(node)["disk_skipped"] == 16
    assert quota(node)["disk_bytes"] == room * PAGE_ROOM
    greedy.client.clear()
    eventually(lambda: quota(node)["disk_bytes"] == 0, 20, "the clear to count")
    fill(node, greedy, ours[:room])
    assert quota(node)["disk_bytes"] == room * PAGE_ROOM
    assert quota(node)["disk_skipped"] == 16


def test_reloaded_quotas_hold_for_open_namespaces(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    file = tmp_path / "p.toml"

    def reload(*rules: str) -> None:
        file.write_text(f"namespace_quotas = {json.dumps(rules)}\n")
        with AdminClient(str(node.admin_path)) as admin:
            assert admin.reload() == (["namespace_quotas"], [], [])

    file.write_text("")
    (options,) = disk_options(tmp_path, "a", disk_size="64MiB", config=str(file))
    node = make_cluster(1, pool_size="16MiB", each=[options])[0]
    one = node.attach(namespace="greedy/one")
    keys = keys_of("one", 160)
    fill(node, one, keys)
    assert node.status()["quotas"] == []

    reload("greedy/*=0.25:0.125", "*=0.5")
    now = quota(node)
    assert (now["quota_bytes"], now["disk_quota_bytes"]) == (QUOTA, 8 << 20)
    assert now["bytes"] > QUOTA  # until its next set
    assert one.set(keys_of("more", 1)) == [Status.ok]
    assert quota(node)["bytes"] <= QUOTA
    wait_written(node)
    assert quota(node)["disk_skipped"] == 1

    # The first rule that fits, now without a limit on disk, and then no rule.
    reload("greedy/one=0.5", "greedy/*=0.25:0.125")
    now = quota(node)
    assert (now["quota_bytes"], now["disk_quota_bytes"]) == (2 * QUOTA, 0)
    reload("other=0.5")
    assert node.status()["quotas"] == []
    fill(node, one, keys_of("again", 160))
    assert found(one, keys_of("again", 160)) == 160

    # A rule goes while no worker has the namespace open.
    reload("greedy/*=0.25:0.0625")
    one.client.clear()
    reload("other=0.5")
    fill(node, one, keys)
    assert found(one, keys) == 160


WRONG = ["a", "a=", "a=0", "a=1.5", "=0.5", "a=b", "a=1:", "a=:1", "a=1:2", "a=1:0", "a=1:1:1"]


@pytest.mark.parametrize("wrong", WRONG)
def test_malformed_quota_is_a_configuration_error(wrong: str) -> None:
    with pytest.raises(ConfigError, match="pattern=share"):
        load(options={"namespace_quotas": wrong})
