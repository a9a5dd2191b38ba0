"""The largest pages, batches and names, through whole clusters."""

import hashlib

import pytest
from harness.clock import seconds
from harness.fixtures import MakeCluster
from harness.pages import keys_of
from harness.raw_worker import RawWorker

from peercache_client import Client, Status
from peercached.admin.client import AdminClient, Refused


def test_a_page_of_64_mib_is_read_from_another_node(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(2, pool_size="160MiB")
    page = hashlib.shake_128(b"a large page").digest(64 << 20)
    with (
        Client(str(cluster[1].socket_path), namespace="large", timeout_s=seconds(20)) as writer,
        Client(str(cluster[0].socket_path), namespace="large", timeout_s=seconds(20)) as reader,
    ):
        source, room = writer.alloc(len(page)), reader.alloc(len(page))
        source.view[:] = page
        assert writer.batch_set(["page"], source, [0], len(page)) == [Status.ok]
        assert reader.batch_get(["page"], room, [0], len(page)) == [Status.ok]
        assert bytes(room.view) == page


def test_65536_pages_are_set_and_read_in_one_call_each(make_cluster: MakeCluster) -> None:
    count = 65_536
    cluster = make_cluster(2, pool_size="640MiB", directory_capacity=200_000)
    keys = keys_of("one batch", count)
    size = {"page_bytes": 64, "room_pages": count, "timeout_s": 30.0}
    assert all(cluster[1].attach(**size).set(keys))
    reader = cluster[0].attach(**size)
    assert reader.client.batch_exists(keys) == count
    assert reader.has(keys)
    operations = cluster[0].status()["operations"]
    assert operations["get_remote"] == count


def test_a_namespace_of_1025_bytes_is_refused_at_every_door(make_cluster: MakeCluster) -> None:
    daemon = make_cluster(1)[0]
    longest, longer = "n" * 1024, "n" * 1025
    with pytest.raises(ValueError, match="1025"):
        Client(str(daemon.socket_path), namespace=longer)
    with RawWorker(daemon.socket_path, hello=False) as worker:
        reply = worker.hello(namespace=longer.encode())
        assert reply.error != 0
        assert "1025" in reply.text
    with AdminClient(str(daemon.admin_path), timeout_s=5.0) as admin:
        for refused in (lambda: admin.locate(longer, b"key"), lambda: admin.clear(longer)):
            with pytest.raises(Refused, match="1025"):
                refused()
        admin.locate(longest, b"key")
        assert admin.clear(longest) == []
    with Client(str(daemon.socket_path), namespace=longest) as client:
        region = client.alloc(4096)
        assert client.batch_set(["k"], region, [0], 4096) == [Status.ok]
