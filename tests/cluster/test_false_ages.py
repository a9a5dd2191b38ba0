"""Members with the secret that claim to be old, or that send heartbeats and answer nothing."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from harness.cluster import Cluster, Daemon
from harness.directory import wait_settled
from harness.fixtures import MakeCluster
from harness.liar import HOST, Liar
from harness.pages import keys_of
from harness.secret_file import secret_file
from harness.waiting import eventually

from peercache_client import Status
from peercached.admin.client import AdminClient, Refused

SECRET = os.urandom(32).hex().encode()
KEYS = keys_of("of everybody", 64)


def while_beating(
    daemons: Sequence[Daemon], work: Callable[[], None], port: int = 1, **liars: int
) -> None:
    """Runs `work` while members of these node ids and incarnations send heartbeats."""

    async def run() -> None:
        async with AsyncExitStack() as stack:
            for node_id, incarnation in liars.items():
                liar = Liar(daemons, SECRET, node_id, incarnation, port)
                await stack.enter_async_context(liar)
            await asyncio.to_thread(work)

    asyncio.run(run())


def share_of(daemon: Daemon, node_ids: set[str]) -> float:
    """The share of all digests that these nodes own, each counted once for each owner."""
    with AdminClient(str(daemon.admin_path)) as admin:
        ring = admin.ring()
    return sum(n.share_owned for n in ring.nodes if n.node_id in node_ids) / ring.replicas


@pytest.fixture
def secret(tmp_path: Path) -> str:
    return secret_file(tmp_path, SECRET)


def test_a_process_that_joins_as_six_old_members_owns_nothing(
    make_cluster: MakeCluster, secret: str
) -> None:
    cluster = make_cluster(4, cluster_secret_file=secret, directory_copies=0, member_ttl_s=5)
    wait_settled(cluster.daemons)
    liars = {f"old{number}": number for number in range(1, 7)}

    def check() -> None:
        for daemon in cluster.daemons:
            eventually(lambda: set(daemon.members()) >= set(liars), 20)  # noqa: B023
            assert share_of(daemon, set(liars)) == 0
        assert all(cluster[1].attach().set(KEYS))
        assert all(cluster[2].attach().get(KEYS))

    while_beating(cluster.daemons[:1], check, **liars)


@pytest.fixture
def trio(make_cluster: MakeCluster, secret: str) -> Cluster:
    return make_cluster(3, cluster_secret_file=secret, member_ttl_s=1.5)


@pytest.mark.parametrize("listens", [False, True])
def test_a_member_that_beats_and_never_answers_is_put_out_and_removals_end(
    trio: Cluster, listens: bool
) -> None:
    worker = trio[1].attach()

    def removed() -> bool:
        gone = (Status.ok, Status.absent)
        return all(s in gone for s in worker.client.remove(KEYS, timeout_s=0.5))

    def check() -> None:
        eventually(lambda: "liar" in trio[0].members(), 20)
        assert all(worker.set(KEYS))
        assert not removed()
        eventually(lambda: "liar" not in trio[0].members(), 30)
        assert "member_mute" in trio[0].codes()
        if listens:  # as a frozen daemon does
            eventually(lambda: "liar" in trio[1].status()["removals"]["missing"], 20)
            with AdminClient(str(trio[1].admin_path)) as admin:
                with pytest.raises(Refused, match="still takes connections"):
                    admin.forget_node("liar")
                assert admin.forget_node("liar", listening=True) == []
        eventually(removed, 30)
        assert worker.client.clear()
        assert "liar" not in trio[0].members()

    with socket.create_server((HOST, 0), backlog=4096) as server:
        port = server.getsockname()[1] if listens else 1
        while_beating(trio.daemons, check, port, liar=0)
