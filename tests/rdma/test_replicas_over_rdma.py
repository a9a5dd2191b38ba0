"""The holder does not see RDMA READs; the reader's node counts them, and keeps what is hot."""

import pytest
from harness.fixtures import MakeCluster
from harness.pages import keys_of
from harness.waiting import eventually

PAGES = 16


@pytest.mark.slow
def test_hot_pages_outlive_their_holder(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(
        2, replica_share=0.1, each=[{"device_names": "rxe0"}, {"device_names": "rxe1"}]
    )
    holder, reader = cluster.daemons
    keys = keys_of("hot", PAGES)
    assert all(holder.attach(room_pages=PAGES).set(keys))
    getting = reader.attach(room_pages=PAGES, timeout_s=20)

    def has_replicas() -> bool:
        """Reads until the node has its own."""
        assert getting.has(keys)
        return int(reader.status()["pool"]["replica_keys"]) == PAGES

    eventually(has_replicas, 60)
    assert sum(rail["bytes"] for rail in reader.status()["transport"]["rails"]) > 0
    holder.kill()
    assert getting.has(keys)
