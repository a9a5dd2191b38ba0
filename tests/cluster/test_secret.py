"""The cluster secret is replaced while workers read: no read misses, and the old secret opens
nothing afterwards."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from harness.certificates import Certificates
from harness.cluster import Cluster, Daemon
from harness.etcd import with_etcd
from harness.fixtures import MakeCluster
from harness.links import link_from
from harness.pages import keys_of
from harness.steady_reader import SteadyReader
from harness.versions import Versions
from harness.waiting import eventually

from peercache_client import Status
from peercached.config.cluster_secret import ClusterSecret, name_of, write_secret
from peercached.membership import NodeAddress
from peercached.peer.rpc.auth import AuthError, Secret
from peercached.peer.rpc.client import PeerLink
from peercached.proto import peer_pb2 as pb

OLD, NEW = b"the old secret of all", b"the new secret of all"
ONE = ClusterSecret(OLD)
ADDED = ONE.with_next(NEW)
USED = ADDED.with_next_in_use()
DROPPED = USED.without_former()


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Each node's own file."""
    found = [tmp_path / f"secret-{name}" for name in "abc"]
    for path in found:
        write_secret(path, ONE)
    return found


@pytest.fixture
def nodes(make_cluster: MakeCluster, files: list[Path]) -> Cluster:
    return make_cluster(3, each=[{"cluster_secret_file": str(path)} for path in files])


@pytest.fixture
def nodes_in_etcd(request: pytest.FixtureRequest, files: list[Path]) -> Cluster:
    etcd, make_cluster = map(request.getfixturevalue, ("etcd", "make_cluster"))
    options = [{"cluster_secret_file": str(path)} for path in files]
    return with_etcd(make_cluster, etcd.endpoint, 3, each=options)


@pytest.fixture(params=["nodes", "nodes_in_etcd"])
def any_nodes(request: pytest.FixtureRequest) -> Any:
    """Clusters with each kind of membership."""
    return request.getfixturevalue(request.param)


def security(daemon: Daemon) -> dict[str, Any]:
    found: dict[str, Any] = daemon.status()["security"]
    return found


def uses(daemon: Daemon, secret: ClusterSecret) -> bool:
    found = security(daemon)
    also = [name_of(other) for other in secret.others]
    return (found["secret"], found["secrets_also_accepted"]) == (name_of(secret.value), also)


def stranger(daemon: Daemon, secret: ClusterSecret) -> PeerLink:
    own = NodeAddress("stranger", 5, "127.0.0.1", 1, 2)
    return link_from(own, daemon.address, Secret(secret))


async def ping(link: PeerLink) -> None:
    await link.call("Ping", pb.PingRequest())


def can_enter(daemon: Daemon, secret: ClusterSecret) -> bool:
    """Whether a stranger with this file's contents gets a session."""

    async def knock() -> bool:
        link = stranger(daemon, secret)
        try:
            await link.ready()
        except AuthError as error:
            assert "cluster secret" in str(error)
            return False
        finally:
            await link.close()
        return True

    return asyncio.run(knock())


def replace_beside_reads(nodes: Cluster, files: list[Path]) -> list[bytes]:
    """Returns the keys that were set before and read all the time."""
    keys = keys_of("under the old secret", 32)
    assert all(nodes[0].attach().set(keys))
    with SteadyReader(nodes[2].attach(), keys) as reading:
        for step in (ADDED, USED, DROPPED):
            for daemon, path in zip(nodes.daemons, files, strict=True):
                write_secret(path, step)
                eventually(partial(uses, daemon, step), 20)
            # Nobody needs to call anybody: the daemons prove the new secret by themselves.
            eventually(lambda: not any(security(d)["older_secret"] for d in nodes.daemons), 20)
        reading.check_whole("the secret was replaced")
    return keys


def test_secret_is_replaced_under_tls(
    make_cluster: MakeCluster, files: list[Path], tmp_path: Path
) -> None:
    certificates = Certificates(tmp_path / "certificates")
    options = [
        {"cluster_secret_file": str(path), **certificates.options(name)}
        for name, path in zip("abc", files, strict=True)
    ]
    nodes = make_cluster(3, each=options)
    replace_beside_reads(nodes, files)
    assert all(security(daemon)["data_sealed"] for daemon in nodes.daemons)


def test_secret_is_replaced_in_three_steps_without_a_miss(
    any_nodes: Cluster, files: list[Path]
) -> None:
    nodes = any_nodes
    keys, later = replace_beside_reads(nodes, files), keys_of("under both", 8)
    assert all(nodes[1].attach().set(later))
    for daemon in nodes.daemons:
        assert security(daemon)["refused_handshakes"] == 0
        assert not can_enter(daemon, ONE), "the old secret opens nothing"
        assert not can_enter(daemon, ClusterSecret(NEW)), "its digests have another key"
        assert can_enter(daemon, DROPPED)
    # A node that starts with the new file finds and removes what was set under the old one.
    nodes[2].kill()
    nodes.start_again(nodes[2])
    assert nodes[2].attach().has(keys + later)
    with Versions(nodes[2].socket_path) as versions:
        assert set(versions.remove(keys)) == {Status.ok}
    assert not any(nodes[0].attach().get(keys))


def change_without_c(
    a: Daemon, b: Daemon, c: Daemon, files: list[Path]
) -> tuple[list[bytes], list[bytes]]:
    """Returns keys set at a, and keys set at c."""
    theirs, its_own = keys_of("of the others", 16), keys_of("of the one that missed it", 16)
    assert all(a.attach().set(theirs))
    assert all(c.attach().set(its_own))
    for step in (ADDED, USED, DROPPED):
        for daemon, path in zip((a, b), files, strict=False):
            write_secret(path, step)
            eventually(partial(uses, daemon, step), 20)
    return theirs, its_own


def test_member_that_missed_the_new_file_is_out_until_it_has_it(
    nodes: Cluster, files: list[Path]
) -> None:
    """It may be an attacker by now. A machine that was off during the change looks the same."""
    a, b, c = nodes.daemons
    theirs, its_own = change_without_c(a, b, c, files)
    for daemon in (a, b):
        daemon.wait_members(["a", "b"])
        assert daemon.attach().has(theirs)
        assert not any(daemon.attach().get(its_own))
    assert not any(c.attach().get(theirs))
    set_alone = keys_of("set by the one that is out", 8)
    c.attach().set(set_alone)
    assert not any(a.attach().get(set_alone))
    write_secret(files[2], DROPPED)
    nodes.wait_complete(60)
    assert c.members() == ["a", "b", "c"]
    assert c.attach().has(theirs)
    eventually(lambda: a.attach().has(its_own), 20)


@pytest.mark.slow
def test_with_etcd_a_member_that_missed_the_new_file_is_suspected_until_it_has_it(
    nodes_in_etcd: Cluster, files: list[Path]
) -> None:
    """etcd alone decides who is a member, so it stays in the view."""
    a, b, c = nodes_in_etcd.daemons
    theirs, its_own = change_without_c(a, b, c, files)
    for daemon in (a, b):
        eventually(lambda: daemon.suspects() == ["c"], 30)  # noqa: B023
        assert daemon.attach().has(theirs)
        assert not any(daemon.attach().get(its_own))
    assert not any(c.attach().get(theirs))
    write_secret(files[2], DROPPED)
    for daemon in (a, b, c):
        eventually(lambda: not daemon.suspects(), 60)  # noqa: B023
    eventually(lambda: c.attach().has(theirs), 20)
    eventually(lambda: a.attach().has(its_own), 20)


def test_a_node_that_is_too_early_proves_the_new_secret_later(
    any_nodes: Cluster, files: list[Path]
) -> None:
    """Until the others know it, they go on with the sessions that they have."""
    nodes = any_nodes
    b = nodes[1]
    for step in (ADDED, USED):
        write_secret(files[1], step)
        eventually(partial(uses, b, step), 20)
    eventually(lambda: security(nodes[0])["refused_handshakes"], 20)
    for step in (ADDED, USED):
        for number in (0, 2):
            write_secret(files[number], step)
            eventually(partial(uses, nodes[number], step), 20)
    eventually(lambda: not any(security(d)["older_secret"] for d in nodes.daemons), 60)
    assert [daemon.members() for daemon in nodes.daemons] == [["a", "b", "c"]] * 3


async def test_a_dropped_secret_ends_the_sessions_that_it_opened(
    nodes: Cluster, files: list[Path]
) -> None:
    link = stranger(nodes[0], ONE)
    try:
        await link.ready()
        for step in (ADDED, USED):
            write_secret(files[0], step)
            await asyncio.to_thread(eventually, partial(uses, nodes[0], step), 20)
            await ping(link)
        assert "stranger" not in security(nodes[0])["older_secret"], "it is no member"
        write_secret(files[0], DROPPED)
        await asyncio.to_thread(eventually, partial(uses, nodes[0], DROPPED), 20)
        with pytest.raises(AuthError):
            await ping(link)
    finally:
        await link.close()


def test_a_foreign_secret_in_the_file_changes_nothing_and_is_reported(
    nodes: Cluster, files: list[Path]
) -> None:
    keys = keys_of("beside a foreign secret", 16)
    assert all(nodes[0].attach().set(keys))
    write_secret(files[1], ClusterSecret(NEW))

    def reported() -> bool:
        return "secret_file_unusable" in nodes[1].codes()

    eventually(reported, 20)
    assert uses(nodes[1], ONE)
    assert nodes[1].attach().has(keys)
    write_secret(files[1], ONE)
    eventually(lambda: not reported(), 20)


def says_anybody_may_join(daemon: Daemon) -> bool:
    return "unauthenticated" in daemon.codes()


def test_running_cluster_gets_its_first_secret_without_a_miss(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    first = ClusterSecret(b"").with_next(NEW)
    nodes = make_cluster(3, member_ttl_s=15)
    paths = [tmp_path / f"first-{daemon.node_id}" for daemon in nodes.daemons]
    for daemon, path in zip(nodes.daemons, paths, strict=True):
        write_secret(path, first)
        daemon.stop()
        daemon.options["cluster-secret-file"] = str(path)
        daemon.start()
        nodes.wait_complete()  # nodes with the file and without are one cluster
    keys = keys_of("before the first secret", 32)
    assert all(nodes[0].attach().set(keys))
    assert not security(nodes[0])["cluster_secret"]
    used = first.with_next_in_use()
    with SteadyReader(nodes[2].attach(), keys) as reading:
        for step in (used, used.without_former()):
            for daemon, path in zip(nodes.daemons, paths, strict=True):
                write_secret(path, step)
                proves = partial(lambda d: security(d)["secret"] == name_of(NEW), daemon)
                eventually(proves, 20)
            eventually(lambda: not any(security(d)["older_secret"] for d in nodes.daemons), 20)
            if step is used:
                assert all(map(says_anybody_may_join, nodes.daemons))
        eventually(lambda: not any(map(says_anybody_may_join, nodes.daemons)), 20)
        reading.check_whole("the first secret came")
    assert not can_enter(nodes[0], ClusterSecret(b"")), "no secret opens nothing any more"
    assert can_enter(nodes[0], used.without_former())
