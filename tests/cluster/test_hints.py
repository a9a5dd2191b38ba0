"""Hints with real daemons: what each action does to pages, and all that is refused."""

import json
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import Any

from harness.clock import seconds
from harness.cluster import Cluster, Daemon
from harness.fixtures import MakeCluster
from harness.pages import Pages, keys_of
from harness.waiting import eventually

from peercache_bench.process import free_port
from peercached.admin.client import AdminClient

PAGE = 256 << 10
POOL = "32MiB"  # 128 pages less headers
SECRET = b"the cluster's own secret"


def hinting(make_cluster: MakeCluster, size: int = 3, **options: Any) -> Cluster:
    # The port is the same for all; their addresses may be.
    given = {"pool_size": POOL, "spill_bytes_per_s": 0, "router_port": 1} | options
    each = [{"router_port": free_port("127.0.0.1")} for _ in range(size)]
    return make_cluster(size, each=each, **given)


def action(kind: str, keys: Sequence[bytes], **payload: Any) -> dict[str, Any]:
    return {
        "action_id": f"{kind} of {len(keys)}",
        "action_type": f"kv.{kind}",
        "action_version": "1.0",
        "payload": {"namespace": "test", "keys": [key.decode() for key in keys], **payload},
    }


def post(
    daemon: Daemon, body: bytes, *, wait: bool = True, **headers: str
) -> tuple[int, dict[str, Any]]:
    """The status of the answer, and its document or text."""
    port = daemon.status()["node"]["metrics_port"]
    request = urllib.request.Request(
        f"http://{daemon.host}:{port}/api/v1/hints?wait={int(wait)}",
        body,
        {"Content-Type": "application/json", **headers},
    )
    try:
        with urllib.request.urlopen(request, timeout=seconds(30)) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, {"why": error.read().decode()}


def hint(daemon: Daemon, *actions: dict[str, Any], wait: bool = True) -> list[dict[str, Any]]:
    envelope = {"protocol_version": "1.0", "message_id": "m1", "actions": list(actions)}
    status, found = post(daemon, json.dumps(envelope).encode(), wait=wait)
    assert status == 200, found
    assert len(found["outcomes"]) == len(actions)
    outcomes: list[dict[str, Any]] = found["outcomes"]
    return outcomes


def outcome(daemon: Daemon, one: dict[str, Any], *, wait: bool = True) -> tuple[str, int, str]:
    (found,) = hint(daemon, one, wait=wait)
    return found["outcome"], found["pages"], found["why"]


def holders(daemon: Daemon, key: bytes, namespace: str = "test") -> set[str]:
    with AdminClient(str(daemon.admin_path)) as admin:
        found = admin.locate(namespace, key)
    return {one.node_id for one in found.holders}


def everywhere_at(cluster: Cluster, key: bytes, nodes: set[str]) -> None:
    eventually(
        lambda: all(holders(daemon, key) == nodes for daemon in cluster.daemons),
        what=f"{key!r} at {nodes}",
    )


def turn_over(writer: Pages, name: str) -> None:
    """Sets more than a pool of other pages."""
    for turn in range(5):
        assert all(writer.set(keys_of(f"{name} {turn}", 64)))


def in_pool(daemon: Daemon, keys: Sequence[bytes]) -> int:
    return sum(daemon.node_id in holders(daemon, key) for key in keys)


# --- the actions


def test_fetch_brings_pages_here_before_they_are_asked_for(make_cluster: MakeCluster) -> None:
    cluster = hinting(make_cluster)
    a, b = cluster[0], cluster[1]
    keys = keys_of("prompt", 8)
    assert all(a.attach(page_bytes=PAGE).set(keys))
    (found,) = hint(b, action("fetch", keys))
    assert (found["outcome"], found["pages"], found["bytes"]) == ("accepted", 8, 8 * PAGE)
    everywhere_at(cluster, keys[0], {"a", "b"})
    status = b.status()["hints"]
    assert (status["unused_pages"], status["pages"]) == (8, {"fetch": 8})
    reads = b.status()["operations"]["get"]
    assert b.attach(page_bytes=PAGE).has(keys)
    assert b.status()["hints"]["unused_pages"] == 0, "a use makes them pages like any other"
    assert b.status()["operations"]["get"] != reads
    assert outcome(b, action("fetch", keys)) == ("accepted", 8, "")
