"""Hints with real daemons: what each action does to pages, and all that is refused."""

import json
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest
from click.testing import CliRunner
from harness.clock import seconds
from harness.cluster import Cluster, Daemon
from harness.ctl import ctl_process
from harness.disks import disk_options
from harness.fixtures import MakeCluster
from harness.pages import Pages, keys_of
from harness.scrape import samples
from harness.secret_file import secret_file
from harness.waiting import eventually

from peercache_bench.process import free_port
from peercache_client import Status
from peercached.admin.client import AdminClient
from peercached.cli.ctl import main
from peercached.proto import router_pb2 as pb
from peercached.proto import router_pb2_grpc
from peercached.routers.token import token_of

PAGE = 256 << 10
POOL = "32MiB"  # 128 pages less headers
SECRET = b"the cluster's own secret"


def hinting(
    make_cluster: MakeCluster,
    size: int = 3,
    each: Sequence[dict[str, Any]] = (),
    **options: Any,
) -> Cluster:
    """Each daemon with a door for routers, unless `router_port` is given."""
    given = {"pool_size": POOL, "spill_bytes_per_s": 0} | options
    ports = [{"router_port": free_port("127.0.0.1")} for _ in range(size)]
    if "router_port" in options:
        ports = [{}] * size
    more = [one | own for one, own in zip(ports, each or [{}] * size, strict=True)]
    return make_cluster(size, each=more, **given)


def action(kind: str, keys: Sequence[bytes], **payload: Any) -> dict[str, Any]:
    return {
        "action_id": f"{kind} of {len(keys)}",
        "action_type": f"kv.{kind}",
        "action_version": "1.0",
        "payload": {"namespace": "test", "keys": [key.decode() for key in keys], **payload},
    }


def post(
    daemon: Daemon, body: bytes, headers: Mapping[str, str] = {}, *, wait: bool = True
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


def holders(daemon: Daemon, *keys: bytes, namespace: str = "test") -> list[set[str]]:
    with AdminClient(str(daemon.admin_path)) as admin:
        found = [admin.locate(namespace, key).holders for key in keys]
    return [{one.node_id for one in its} for its in found]


def everywhere_at(cluster: Cluster, key: bytes, nodes: set[str]) -> None:
    eventually(
        lambda: all(holders(daemon, key) == [nodes] for daemon in cluster.daemons),
        what=f"{key!r} at {nodes}",
    )


def turn_over(writer: Pages, name: str) -> None:
    """Sets more than a pool of other pages."""
    for turn in range(5):
        assert all(writer.set(keys_of(f"{name} {turn}", 64)))


def in_pool(daemon: Daemon, keys: Sequence[bytes], namespace: str = "test") -> int:
    return sum(daemon.node_id in its for its in holders(daemon, *keys, namespace=namespace))


@pytest.fixture
def hinting_node(make_cluster: MakeCluster) -> Daemon:
    return hinting(make_cluster, 1)[0]


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


def test_prefetch_and_share_bring_copies_to_the_node_that_they_name(
    make_cluster: MakeCluster,
) -> None:
    cluster = hinting(make_cluster)
    a, b, _ = cluster.daemons
    keys = keys_of("prompt", 8)
    assert all(a.attach(page_bytes=PAGE).set(keys))
    assert outcome(b, action("prefetch", keys, node="c"))[:2] == ("accepted", 8)
    everywhere_at(cluster, keys[7], {"a", "c"})
    assert outcome(a, action("share", keys, node="b"))[:2] == ("accepted", 8)
    everywhere_at(cluster, keys[7], {"a", "b", "c"})
    assert [one.status()["hints"]["unused_pages"] for one in cluster.daemons] == [0, 8, 8]


def test_retained_pages_outlive_others_until_their_time_is_over(make_cluster: MakeCluster) -> None:
    cluster = hinting(make_cluster)
    holder, asker = cluster[0], cluster[1]
    writer = holder.attach(page_bytes=PAGE)
    kept, usual = keys_of("kept", 8), keys_of("usual", 8)
    assert all(writer.set(kept)) and all(writer.set(usual))
    assert outcome(asker, action("retain", kept, seconds=600)) == ("accepted", 8, "")
    assert holder.status()["hints"]["retained_pages"] == 8
    turn_over(writer, "new")
    eventually(lambda: in_pool(holder, usual) == 0, what="the others to be evicted")
    assert in_pool(holder, kept) == 8
    assert outcome(asker, action("retain", kept, seconds=0.2))[0] == "accepted"
    eventually(lambda: holder.status()["hints"]["retained_pages"] == 0, what="the end")
    turn_over(writer, "newer")
    eventually(lambda: in_pool(holder, kept) == 0, what="the kept ones to be evicted")


def test_demoted_pages_go_before_older_ones(make_cluster: MakeCluster) -> None:
    cluster = hinting(make_cluster)
    holder = cluster[0]
    writer = holder.attach(page_bytes=PAGE)
    old, done = keys_of("old", 24), keys_of("done", 8)
    assert all(writer.set(old)) and all(writer.set(done))
    assert outcome(cluster[2], action("demote", done)) == ("accepted", 8, "")
    for new in keys_of("new", 200):
        assert all(writer.set([new]))
        if in_pool(holder, done) <= 4:  # background eviction takes some at once
            break
    assert in_pool(holder, done) <= 4 and in_pool(holder, old) == 24


def test_pages_are_demoted_to_the_disk(make_cluster: MakeCluster, tmp_path: Path) -> None:
    cluster = hinting(make_cluster, 2, disk_options(tmp_path, "ab"))
    holder, asker = cluster[0], cluster[1]
    keys = keys_of("prompt", 8)
    writer = holder.attach(page_bytes=PAGE)
    assert all(writer.set(keys))
    assert outcome(asker, action("demote", keys, to="disk"))[:2] == ("accepted", 8)
    eventually(lambda: holder.status()["pool"]["keys"] == 0, what="the pool to be empty")
    assert writer.has(keys), "they are on the disk"


def test_demote_to_a_disk_that_is_not_there_is_refused(make_cluster: MakeCluster) -> None:
    (holder,) = hinting(make_cluster, 1).daemons
    assert all(holder.attach(page_bytes=PAGE).set([b"k"]))
    found, _, why = outcome(holder, action("demote", [b"k"], to="disk"))
    assert (found, why) == ("refused", "this node has no disk tier")


def test_pin_is_a_promise_within_pin_share(make_cluster: MakeCluster) -> None:
    cluster = hinting(make_cluster)
    keys = keys_of("many", 12)
    assert all(cluster[0].attach(page_bytes=PAGE).set(keys))
    found, pages, why = outcome(cluster[1], action("pin", keys, seconds=600))
    assert (found, pages) == ("clipped", 8) and "half of pin_share" in why
    assert cluster[0].status()["pins"]["pages"] == 8


def test_pages_that_no_node_has_are_missing(make_cluster: MakeCluster) -> None:
    cluster = hinting(make_cluster, 2)
    keys = keys_of("nowhere", 3)
    for one in (
        action("fetch", keys),
        action("prefetch", keys, node="b"),
        action("retain", keys, seconds=1),
        action("pin", keys, seconds=1),
        action("demote", keys),
    ):
        assert outcome(cluster[0], one) == ("missing", 0, "no node has them")


# --- refusals


def test_unknown_actions_are_counted_and_ignored(make_cluster: MakeCluster) -> None:
    cluster = hinting(make_cluster, 1)
    (daemon,) = cluster.daemons
    assert all(daemon.attach(page_bytes=PAGE).set([b"k"]))
    strange = action("teleport", [b"k"])
    newer = action("fetch", [b"k"]) | {"action_version": "2.0"}
    known = action("fetch", [b"k"])
    found = hint(daemon, strange, newer, known)
    assert [one["outcome"] for one in found] == ["ignored", "ignored", "accepted"]
    counts = daemon.status()["hints"]["answered"]
    assert {"action": "unknown", "outcome": "ignored", "count": 2} in counts


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"{", "the envelope is not JSON"),
        (b"[]", "the envelope is a list"),
        (b"[" * 100_000, "the envelope is not JSON"),
        (b'{"protocol_version": "1.0", "actions": {}}', "actions is a dict"),
        (b'{"protocol_version": "2.0", "actions": []}', "protocol_version is '2.0'"),
        (b'{"actions": []}', "protocol_version is missing"),
        (b'{"protocol_version": "1.0", "actions": [1]}', "action 0 is a int"),
        (b'{"protocol_version": "1.0", "actions": [{"action_id": 1}]}', "action_id of action 0"),
        (b'{"protocol_version": "1.0", "actions": [' + b",".join([b"{}"] * 65) + b"]}", "65 act"),
        (b" " * (300 << 10), "307200 bytes: 262144 are the limit"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_malformed_envelope_is_refused_as_a_whole(
    hinting_node: Daemon, body: bytes, why: str
) -> None:
    status, found = post(hinting_node, body)
    assert status == 400 and why in found["why"], found


def test_million_actions_cost_little(hinting_node: Daemon) -> None:
    before = hinting_node.status()["hints"]["malformed"]
    status, found = post(hinting_node, b'{"actions": [' + b"{}," * 1_000_000 + b"{}]}")
    assert status == 413 and "524288 bytes" in found["why"]
    status, found = post(hinting_node, b'{"protocol_version": "1", "actions": [' + b"1," * 120_000)
    assert status == 400 and "not JSON" in found["why"]
    assert hinting_node.status()["hints"]["malformed"] == before + 1


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        ({"namespace": ""}, "namespace is ''"),
        ({"keys": []}, "it names no pages"),
        ({"keys": ["k"] * 4097}, "4097 keys in an action: 4096 are the limit"),
        ({"keys": ["k", 1]}, "keys is not a list of texts"),
        ({"keys": [""]}, "keys has a key of 0 bytes"),
        ({"keys_hex": ["xy"], "keys": None}, "keys is not a list of texts"),
        ({"seconds": 10**320}, "must be above 0 and at most 3600"),
        ({"seconds": 3601}, "seconds is 3601: must be above 0 and at most 3600"),
        ({"seconds": None}, "seconds is missing: must be above 0"),
        ({"seconds": True}, "seconds is True"),
        ({"seconds": "1"}, "seconds is '1'"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_malformed_action_is_refused_by_itself(
    hinting_node: Daemon, payload: dict[str, Any], why: str
) -> None:
    bad = action("retain", [b"k"], seconds=1)
    bad["payload"] |= payload
    found = hint(hinting_node, bad, action("retain", [b"k"], seconds=1))
    assert [one["outcome"] for one in found] == ["refused", "missing"]
    assert why in found[0]["why"]
    assert why in hinting_node.status()["hints"]["refusals"][-1]["why"]


def test_text_that_is_no_unicode_is_refused_and_costs_nothing(hinting_node: Daemon) -> None:
    for fields in ({"namespace": "\ud800"}, {"keys": ["\ud800"]}, {"node": "\udfff"}):
        for kind in ("fetch", "fetch", "share", "retain", "pin", "demote"):
            bad = action(kind, [b"k"], seconds=1, node="a")
            bad["payload"] |= fields
            body = {"protocol_version": "1.0", "message_id": "m1", "actions": [bad]}
            status, found = post(hinting_node, json.dumps(body).encode())
            assert status == 400 and "no Unicode" in found["why"]
    assert outcome(hinting_node, action("fetch", [b"k"]))[0] == "missing"


def test_made_up_namespaces_take_no_part_of_the_budget(hinting_node: Daemon) -> None:
    made_up = [action("retain", [b"k"], namespace=f"n{i}", seconds=1) for i in range(64)]
    assert {one["outcome"] for one in hint(hinting_node, *made_up)} == {"missing"}
    assert hinting_node.status()["hints"]["namespaces"] == []


def test_unknown_node_is_refused(make_cluster: MakeCluster) -> None:
    cluster = hinting(make_cluster, 2)
    found, _, why = outcome(cluster[0], action("prefetch", [b"k"], node="z"))
    assert (found, why) == ("refused", "there is no member 'z': there are a, b")


def test_daemon_without_router_port_takes_no_hints(make_cluster: MakeCluster) -> None:
    (daemon,) = make_cluster(1).daemons
    status, found = post(daemon, b"{}")
    assert (status, found["why"]) == (404, "this daemon takes no hints: set router_port\n")
    assert daemon.status()["routers"]["port"] == 0


# --- who may


def test_hints_need_the_token_where_there_is_a_secret(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    cluster = hinting(make_cluster, 1, cluster_secret_file=secret_file(tmp_path, SECRET))
    (daemon,) = cluster.daemons
    body = b'{"protocol_version": "1.0", "actions": []}'
    for headers in ({}, {"Authorization": "Bearer " + "f" * 64}, {"Authorization": "token"}):
        status, found = post(daemon, body, headers)
        assert status == 401 and "peercachectl router-token" in found["why"]
    status, found = post(daemon, body, {"Authorization": "Bearer "})
    assert status == 401 and "has an empty token" in found["why"]
    token = token_of(SECRET)
    status, found = post(daemon, body, {"Authorization": f"Bearer {token}"})
    assert (status, found["outcomes"]) == (200, [])


def test_page_in_a_browser_cannot_send_hints(make_cluster: MakeCluster) -> None:
    (daemon,) = hinting(make_cluster, 1).daemons
    assert post(daemon, b"{}", {"Content-Type": "text/plain"})[0] == 415


def test_hint_touches_no_page_of_another_namespace(make_cluster: MakeCluster) -> None:
    cluster = hinting(make_cluster)
    holder = cluster[0]
    keys = keys_of("theirs", 4)
    assert all(holder.attach(page_bytes=PAGE, namespace="theirs").set(keys))
    for one in (
        action("demote", keys),
        action("retain", keys, seconds=1),
        action("pin", keys, seconds=1),
        action("fetch", keys),
    ):
        assert outcome(cluster[1], one)[0] == "missing"


# --- workers


def test_worker_hands_on_hints_about_its_own_pages(
    make_cluster: MakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = hinting(make_cluster, 2, router_port=0)
    a, b = cluster[0].attach(page_bytes=PAGE), cluster[1].attach(page_bytes=PAGE)
    keys = keys_of("prompt", 8)
    assert all(a.set(keys))
    fetch = action("fetch", [])
    fetch["payload"] = {"source": "10.0.0.1:1", "block_hashes": [1, 2]}
    envelope = {"protocol_version": "1.0", "message_id": "m", "actions": [fetch]}
    (found,) = b.client.hint(envelope, keys)
    assert found.outcome == "accepted"
    eventually(lambda: in_pool(cluster[1], keys) == 8, what="the pages to come")
    foreign = action("demote", keys)
    foreign["payload"]["namespace"] = "other"
    (found,) = b.client.hint(json.dumps(envelope | {"actions": [foreign]}))
    assert found.outcome == "refused" and "its own namespace" in found.why
    assert b.client.hint("no JSON") == b.client.hint("[]") == [], "the whole envelope is refused"
    for why in ("the envelope is not JSON", "the envelope is a list"):
        eventually(lambda why=why: why in caplog.text)  # type: ignore[misc]
    assert b.has(keys), "the connection goes on"


# --- budgets


def test_fetch_is_clipped_to_the_part_of_its_namespace(make_cluster: MakeCluster) -> None:
    cluster = hinting(make_cluster, 2, hint_share=0.125)  # 16 pages
    a, b = cluster[0], cluster[1]
    keys = keys_of("many", 32)
    assert all(a.attach(page_bytes=PAGE).set(keys))
    found, pages, why = outcome(b, action("fetch", keys))
    assert (found, pages) == ("clipped", 16) and "4194304 bytes" in why
    found, pages, why = outcome(b, action("fetch", keys[16:]))
    assert (found, pages) == ("refused", 0)
    # A second namespace has half from now on.
    other = a.attach(page_bytes=PAGE, namespace="other")
    assert all(other.set(keys))
    theirs = action("fetch", keys)
    theirs["payload"]["namespace"] = "other"
    assert outcome(b, theirs)[:2] == ("clipped", 8)
    parts = {one["part_bytes"] for one in b.status()["hints"]["namespaces"]}
    assert parts == {2 << 20}


def test_retain_beyond_the_share_is_clipped(make_cluster: MakeCluster) -> None:
    (holder,) = hinting(make_cluster, 1, hint_share=0.125).daemons
    keys = keys_of("many", 20)
    writer = holder.attach(page_bytes=PAGE)
    assert all(writer.set(keys))
    found, pages, why = outcome(holder, action("retain", keys, seconds=60))
    assert (found, pages) == ("clipped", 16) and "(hint_share)" in why
    turn_over(writer, "new")
    assert writer.client.batch_set([b"k"], writer.region, [0], PAGE) == [Status.ok]


def test_flood_of_one_namespace_leaves_the_pages_of_another(make_cluster: MakeCluster) -> None:
    cluster = hinting(make_cluster, 2, hint_share=0.125)
    a, b = cluster[0], cluster[1]
    victim = b.attach(page_bytes=PAGE, namespace="victim")
    theirs = [keys_of(f"theirs {turn}", 40) for turn in range(3)]
    for keys in theirs:
        assert all(victim.set(keys))
    flood = [keys_of(f"flood {turn}", 40) for turn in range(3)]
    writer = a.attach(page_bytes=PAGE)
    for keys in flood:
        assert all(writer.set(keys))
    before = sum(one["count"] for one in b.status()["hints"]["ended"])
    found: list[str] = []
    for turn in range(60):
        one = action("fetch", flood[turn % 3])
        found += [each["outcome"] for each in hint(b, *[one] * 64, wait=False)]
    assert found.count("refused") > 0, "the queue is bounded"
    done = before + found.count("accepted")
    eventually(
        lambda: sum(one["count"] for one in b.status()["hints"]["ended"]) == done,
        30,
        what="the flood to end",
    )
    # The share of hints, and what lies colder than the place of their pages.
    present = sum(in_pool(b, keys, "victim") for keys in theirs)
    assert present >= 120 - 16 - 16, present


# --- the other doors


def told(daemon: Daemon, *words: str) -> str:
    done = ctl_process(daemon, "hints", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_grpc_takes_the_same_envelopes(make_cluster: MakeCluster, tmp_path: Path) -> None:
    cluster = hinting(make_cluster, 2, cluster_secret_file=secret_file(tmp_path, SECRET))
    a, b = cluster[0], cluster[1]
    keys = keys_of("prompt", 4)
    assert all(a.attach(page_bytes=PAGE).set(keys))
    envelope = {"protocol_version": "1.0", "message_id": "m", "actions": [action("fetch", keys)]}
    request = pb.HintsRequest(envelope=json.dumps(envelope).encode(), wait=True)
    port = b.status()["routers"]["port"]
    with grpc.insecure_channel(f"{b.host}:{port}") as channel:
        stub = router_pb2_grpc.RouterStub(channel)  # type: ignore[no-untyped-call]
        with pytest.raises(grpc.RpcError, match="peercachectl router-token"):
            stub.Hints(request, timeout=seconds(10))
        token = [("authorization", f"Bearer {token_of(SECRET)}")]
        (found,) = stub.Hints(request, metadata=token, timeout=seconds(10)).outcomes
    assert (found.outcome, found.pages, found.bytes) == ("accepted", 4, 4 * PAGE)
    assert b.status()["routers"]["unauthenticated"] == 1


def test_operator_sends_hints_and_sees_what_came_of_them(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    cluster = hinting(make_cluster, 2, router_port=0)
    a, b = cluster[0], cluster[1]
    assert "No hint came" in told(b)
    keys = keys_of("prompt", 4)
    assert all(a.attach(page_bytes=PAGE).set(keys))
    file = tmp_path / "hints.json"
    envelope = {"protocol_version": "1.0", "message_id": "m", "actions": [action("fetch", keys)]}
    file.write_text(json.dumps(envelope))
    assert "accepted" in told(b, "send", str(file))
    file.write_text(json.dumps(envelope | {"actions": [action("fetch", [b"nowhere"])]}))
    assert ctl_process(b, "hints", "send", str(file)).returncode == 1
    answered = b.status()["hints"]["answered"]
    assert {"action": "fetch", "outcome": "missing", "count": 1} in answered, "as it was told"
    lone = action("retain", [b"nowhere"], seconds=1)
    file.write_text(json.dumps(envelope | {"actions": [lone]}))
    assert ctl_process(b, "hints", "send", str(file)).returncode == 1
    shown = told(b)
    assert "4 pages, 1 MiB of 3.2 MiB" in shown, shown
    assert "hints      3 actions answered" in ctl_process(b, "status").stdout
    assert samples(b)("hinted_pages") == 4


def test_router_token_is_that_of_the_secret(tmp_path: Path) -> None:
    file = secret_file(tmp_path, SECRET)
    shown = CliRunner().invoke(main, ["router-token", file])
    assert shown.output.strip() == token_of(SECRET)
    assert SECRET.hex() not in shown.output


def test_router_token_asks_the_daemon_where_the_secret_is(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    file = secret_file(tmp_path, SECRET)
    (daemon,) = hinting(make_cluster, 1, cluster_secret_file=file).daemons
    assert ctl_process(daemon, "router-token").stdout.strip() == token_of(SECRET)
    (open_one,) = hinting(make_cluster, 1).daemons
    refused = ctl_process(open_one, "router-token")
    assert refused.returncode == 4 and "has no cluster_secret_file" in refused.stderr
    nobody = CliRunner().invoke(main, ["--socket", str(tmp_path / "none"), "router-token"])
    assert nobody.exit_code == 4 and "name FILE" in nobody.output
