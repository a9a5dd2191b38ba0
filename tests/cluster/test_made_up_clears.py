"""A process with the secret makes node ids with fresh keys, each with made-up clears, to fill the
epoch table. A user's clear still succeeds, and its pages stay void after a restart."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from harness.cluster import Daemon
from harness.fixtures import MakeCluster
from harness.links import link_from
from harness.pages import keys_of
from harness.secret_file import secret_file
from harness.warm_pools import PoolFiles

from peercached.directory.epochs import EPOCHS_PER_MESSAGE_MAX
from peercached.membership import Heartbeat, Member, NodeAddress, State
from peercached.peer.membership.embedded import wire as member_wire
from peercached.peer.rpc.auth import Secret
from peercached.peer.rpc.node_key import NodeKey

SECRET = os.urandom(32).hex().encode()
TABLE_MAX = 65_536  # kNamespacesMax
IDS = TABLE_MAX // EPOCHS_PER_MESSAGE_MAX + 1
AT_ONCE = 16
KEYS = keys_of("page", 8)


async def tell_made_up_clears(daemon: Daemon, number: int) -> None:
    """One node id says goodbye at once, so it never is a member."""
    key = NodeKey.make()
    own = NodeAddress(f"x{number}", time.time_ns(), "127.0.0.9", 1, 1, 1 << 20, (), key.public)
    link = link_from(own, daemon.address, Secret(SECRET, key))
    epochs = [(os.urandom(16), 1) for _ in range(EPOCHS_PER_MESSAGE_MAX)]
    beat = Heartbeat(Member(own, state=State.LEFT), 0)
    try:
        await link.call("Heartbeat", member_wire.heartbeat_message(beat, epochs))
    finally:
        await link.close()


async def tell_from_many_ids(daemon: Daemon) -> None:
    for first in range(0, IDS, AT_ONCE):
        numbers = range(first, min(first + AT_ONCE, IDS))
        await asyncio.gather(*(tell_made_up_clears(daemon, number) for number in numbers))


def test_many_node_ids_of_one_process_leave_room_for_a_first_clear(
    make_cluster: MakeCluster, pool_files: PoolFiles, tmp_path: Path
) -> None:
    secret = secret_file(tmp_path, SECRET)
    cluster = make_cluster(2, cluster_secret_file=secret, each=pool_files.options(2))
    a, b = cluster.daemons
    asyncio.run(tell_from_many_ids(a))
    writer, reader = a.attach(namespace="honest"), b.attach(namespace="honest")
    assert all(writer.set(KEYS))
    assert all(reader.get(KEYS))
    assert writer.client.clear()
    assert not any(writer.get(KEYS) + reader.get(KEYS))
    for daemon in (a, b):
        daemon.stop()
    for daemon in (a, b):
        daemon.start()
    cluster.wait_complete()
    assert not any(a.attach(namespace="honest").get(KEYS))
    assert not any(b.attach(namespace="honest").get(KEYS))
