"""The prefix index for routers, with real daemons: each node's share of a prompt's beginning."""

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from harness.clock import seconds
from harness.cluster import Cluster, Daemon
from harness.disks import disk_options
from harness.engine import PAGE_SIZE, Engine, tokens_of
from harness.fixtures import MakeCluster
from harness.pages import keys_of
from harness.waiting import eventually

from peercache_client.connector import PrefixIndex
from peercached.admin.client import AdminClient


def post(daemon: Daemon, document: Any) -> Any:
    port = daemon.status()["node"]["metrics_port"]
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    request = urllib.request.Request(f"http://{daemon.host}:{port}/api/v1/prefix", body)
    with urllib.request.urlopen(request, timeout=seconds(10)) as answer:
        return json.load(answer)


def ask(daemon: Daemon, keys: list[bytes]) -> dict[str, Any]:
    found = post(daemon, {"namespace": "test", "keys": [key.decode() for key in keys]})
    assert found["keys"] == len(keys)
    return {"present": found["present"], **{n["node_id"]: n["prefix"] for n in found["nodes"]}}


def everywhere(cluster: Cluster, keys: list[bytes], truth: dict[str, int]) -> None:
    """Every node gives this answer soon: copies lag behind a set by milliseconds."""

    def wrong() -> dict[str, Any]:
        found = {one.node_id: ask(one, keys) for one in cluster.daemons if one.alive}
        return {name: each for name, each in found.items() if each != truth}

    eventually(lambda: not wrong(), 10, what=f"{truth} at every node")


def test_each_node_counts_to_its_first_missing_page(three_nodes: Cluster) -> None:
    keys = keys_of("prompt", 40)
    a, b, c = (daemon.attach() for daemon in three_nodes.daemons)
    assert all(a.set(keys[:10]))
    assert all(b.set(keys[:25]))
    assert all(c.set(keys[10:30]))  # not the first page
    everywhere(three_nodes, keys, {"present": 30, "a": 10, "b": 25})
    everywhere(three_nodes, keys_of("nowhere", 5), {"present": 0})
    # A removal counts at once, at every node: it is answered when no node has the page.
    assert all(b.client.remove(keys[4:5]))
    for daemon in three_nodes.daemons:
        assert ask(daemon, keys) == {"present": 4, "a": 4, "b": 4}
    assert all(c.set(keys[4:5]))
    everywhere(three_nodes, keys, {"present": 30, "a": 4, "b": 4})


def test_a_cleared_namespace_has_no_prefix(three_nodes: Cluster) -> None:
    keys = keys_of("to be cleared", 8)
    assert all(three_nodes[1].attach().set(keys))
    everywhere(three_nodes, keys, {"present": 8, "b": 8})
    with AdminClient(str(three_nodes[0].admin_path)) as admin:
        admin.clear("test")
    for daemon in three_nodes.daemons:
        assert ask(daemon, keys) == {"present": 0}


def test_a_dead_node_counts_no_more_and_its_pages_only_where_others_have_them(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster(3)
    keys = keys_of("survives", 20)
    assert all(cluster[0].attach().set(keys[:8]))
    assert all(cluster[2].attach().set(keys))
    everywhere(cluster, keys, {"present": 20, "a": 8, "c": 20})
    cluster[2].kill()
    everywhere(cluster, keys, {"present": 8, "a": 8})


def test_pages_of_a_silent_member_do_not_count_until_it_answers(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(3, member_ttl_s=60)
    keys, reader = keys_of("silent", 8), cluster[0].attach(timeout_s=2.0)
    assert all(cluster[2].attach().set(keys))
    everywhere(cluster, keys, {"present": 8, "c": 8})
    cluster[2].freeze()
    # A read that fails makes it suspect. It stays a member.
    eventually(lambda: not reader.has(keys) and ask(cluster[0], keys) == {"present": 0}, 30)
    assert len(cluster[0].members()) == 3
    cluster[2].thaw()
    eventually(lambda: ask(cluster[0], keys) == {"present": 8, "c": 8}, 30)


@pytest.mark.parametrize("copies", [1_000_000, 0], ids=["copied", "asked"])
def test_all_holders_of_a_popular_prefix_are_named(make_cluster: MakeCluster, copies: int) -> None:
    """A lookup at an owner names three holders. Copies name all."""
    cluster = make_cluster(6, directory_copies=copies)
    keys = keys_of("system prompt", 12)
    for count, daemon in enumerate(cluster.daemons, 7):
        assert all(daemon.attach().set(keys[:count]))
    truth = {"present": 12, **{daemon.node_id: n for n, daemon in enumerate(cluster.daemons, 7)}}
    if copies:
        everywhere(cluster, keys, truth)
        return
    for daemon in cluster.daemons:
        found = ask(daemon, keys)
        assert found.pop("present") == 12
        assert found[daemon.node_id] == truth[daemon.node_id], "its own pages it knows"
        assert len(found) >= 3
        assert all(found[name] <= truth[name] for name in found)


def test_pages_on_disk_are_counted_apart(make_cluster: MakeCluster, tmp_path: Path) -> None:
    cluster = make_cluster(2, each=disk_options(tmp_path, "a"))
    keys = keys_of("cold", 8)
    assert all(cluster[0].attach().set(keys))
    eventually(lambda: cluster[0].status()["disk"]["pages"] == 8, 15)
    with AdminClient(str(cluster[0].admin_path)) as admin:
        assert admin.evict("test", keys[2:5]).pages == 3
    names = [key.decode() for key in keys]

    def counted(daemon: Daemon) -> Any:
        [node] = post(daemon, {"namespace": "test", "keys": names})["nodes"]
        return node

    wanted = {"node_id": "a", "host": cluster[0].host, "prefix": 8, "in_pool": 5, "on_disk": 3}
    eventually(lambda: [counted(one) for one in cluster.daemons] == [wanted, wanted], 10)


def test_asking_is_no_use_of_pages_and_opens_no_namespace(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(2)
    keys = keys_of("old", 16)
    assert all(cluster[0].attach().set(keys))
    everywhere(cluster, keys, {"present": 16, "a": 16})
    assert all(cluster[0].attach().set(keys_of("young", 16)))
    before = [daemon.status() for daemon in cluster.daemons]
    everywhere(cluster, keys, {"present": 16, "a": 16})
    post(cluster[1], {"namespace": "never heard of", "keys": ["k"]})
    with AdminClient(str(cluster[0].admin_path)) as admin:
        assert admin.evict_coldest(16 * 65_536).pages == 16
    everywhere(cluster, keys, {"present": 0})
    for then, daemon in zip(before, cluster.daemons, strict=True):
        now = daemon.status()
        counted = [name for name in then["operations"] if name.startswith(("exists", "get"))]
        assert counted
        assert {n: now["operations"][n] for n in counted} == {
            n: then["operations"][n] for n in counted
        }
        assert "never heard of" not in [one["name"] for one in now["namespaces"]]


def test_a_long_prompt_is_counted_in_pieces(three_nodes: Cluster) -> None:
    keys = keys_of("long prompt", 700)
    a, b, _ = (daemon.attach(page_bytes=4096) for daemon in three_nodes.daemons)
    for pages, begin, end in ((a, 0, 600), (b, 0, 256), (b, 300, 700)):  # 256: as long as a piece
        for at in range(begin, end, 50):
            assert all(pages.set(keys[at : min(at + 50, end)]))
    everywhere(three_nodes, keys, {"present": 700, "a": 600, "b": 256})


def test_digests_name_pages_too(three_nodes: Cluster) -> None:
    keys = keys_of("by digest", 3)
    assert all(three_nodes[1].attach().set(keys))
    with AdminClient(str(three_nodes[0].admin_path)) as admin:
        digests = [admin.locate("test", key).digest for key in keys]
    found = post(three_nodes[1], {"digests": digests})
    assert (found["present"], found["nodes"][0]["node_id"]) == (3, "b")


NONSENSE: list[tuple[Any, int, str]] = [
    (b"{", 400, "not JSON"),
    (b"[" * 100_000, 400, "not JSON"),
    ([], 400, "the body is a list"),
    ({"namespace": "test"}, 400, "either keys or digests"),
    ({"namespace": "test", "keys": ["k"], "digests": []}, 400, "either keys or digests"),
    ({"keys": ["k"]}, 400, "namespace is None"),
    ({"namespace": "n" * 2000, "keys": ["k"]}, 400, "1024 are the limit"),
    ({"namespace": "test", "keys": "k"}, 400, "not a list of texts"),
    ({"namespace": "test", "keys": ["k", 7]}, 400, "not a list of texts"),
    ({"namespace": "test", "keys": ["k", ""]}, 400, "key 1 has 0 bytes"),
    ({"namespace": "test", "keys": ["k", "\ud800"]}, 400, "valid Unicode"),
    ({"digests": ["0" * 32, "xyz"]}, 400, "digest 1 is 'xyz'"),
    ({"digests": ["0" * 32, " " * 32]}, 400, "digest 1 is"),
    ({"namespace": "test", "keys": ["k"] * 4097}, 413, "4096 are the limit"),
    (b" " * 600_000, 413, "more than 524288 bytes"),
]


def test_nonsense_is_refused_in_words(three_nodes: Cluster) -> None:
    for document, code, said in NONSENSE:
        with pytest.raises(urllib.error.HTTPError) as refused:
            post(three_nodes[0], document)
        answer = refused.value.read().decode()
        assert (refused.value.code, said in answer) == (code, True), answer


def test_the_switch_of_the_dashboard_turns_it_off(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(1, metrics_dashboard=False)
    with pytest.raises(urllib.error.HTTPError) as refused:
        post(cluster[0], {"namespace": "test", "keys": ["k"]})
    assert refused.value.code == 404


@pytest.mark.parametrize("eagle", [False, True])
def test_a_router_finds_the_tokens_that_engines_have_stored(
    three_nodes: Cluster, eagle: bool
) -> None:
    tokens = tokens_of(f"routed {eagle}", 9, more=3)
    options: dict[str, Any] = {"model_name": "acme/routed", "tenant": "t", "is_eagle": eagle}
    with (
        Engine(three_nodes[0].socket_path, **options) as first,
        Engine(three_nodes[2].socket_path, **options) as second,
    ):
        assert first.register().store("1", tokens, range(4)) == 4 * PAGE_SIZE
        assert second.register().store("2", tokens, range(9)) == 9 * PAGE_SIZE
        sizes = [first.page_bytes] * first.buffers
        url = f"http://{three_nodes[1].metrics_address()}"
        index = PrefixIndex(first.connector.metadata, sizes, url, timeout_s=seconds(10))
        # The longest first. b hears of both nodes' pages some 20 ms later.
        truth = [("c", 9 * PAGE_SIZE), ("a", 4 * PAGE_SIZE)]
        eventually(lambda: list(index.prefix_by_node(tokens).items()) == truth, 10)
        assert index.prefix_by_node(tokens, cache_salt="another's") == {}
        assert index.prefix_by_node(tokens[: PAGE_SIZE - 1]) == {}
        with pytest.raises(ValueError, match="token 0 is -1"):
            index.prefix_by_node([-1] * 2 * PAGE_SIZE)
    with pytest.raises(ValueError, match="https://x"):
        PrefixIndex(first.connector.metadata, sizes, "https://x")
    away = PrefixIndex(first.connector.metadata, sizes, url + "/nowhere")
    with pytest.raises(OSError, match="answered 404"):
        away.prefix_by_node(tokens)
