"""`exists` with `hold_s` promises that a hit stays in place for that long."""

import pytest
from harness.fixtures import MakeCluster
from harness.pages import keys_of
from harness.waiting import eventually

PAGE_BYTES = 256 << 10


@pytest.mark.parametrize("at_holder", [False, True], ids=["over the network", "at the holder"])
def test_held_pages_survive_pool_turnover_until_their_hold_expires(
    make_cluster: MakeCluster, at_holder: bool
) -> None:
    holder, reader = make_cluster(2, pool_size="32MiB").daemons
    writer = holder.attach(page_bytes=PAGE_BYTES, room_pages=200)
    client = reader.attach(page_bytes=PAGE_BYTES)
    asker = writer if at_holder else client
    promised, usual = keys_of("promised", 12), keys_of("usual", 12)
    assert all(writer.set(promised)) and all(writer.set(usual))
    assert asker.client.batch_exists(promised, hold_s=4) == 12
    for turn in range(3):
        assert all(writer.set(keys_of(f"new {turn}", 64)))
    eventually(lambda: client.client.batch_exists(usual) == 0, what="owners to be told")
    assert client.has(promised)
    eventually(
        lambda: writer.client.stats()["daemon"]["holds"]["pages"] == 0, what="the holds to end"
    )
    # More than two pools full, because these pages have been used. Some may stay for that.
    for turn in range(2):
        assert all(writer.set(keys_of(f"newer {turn}", 160)))
    eventually(lambda: client.client.batch_exists(promised) < 12, what="owners to be told")


def test_exists_with_hold_counts_only_pages_it_can_hold(make_cluster: MakeCluster) -> None:
    holder, reader = make_cluster(2, pool_size="32MiB").daemons
    keys = keys_of("many", 96)
    writer = holder.attach(page_bytes=PAGE_BYTES, room_pages=200)
    assert all(writer.set(keys))
    client = reader.attach(page_bytes=PAGE_BYTES).client
    present = client.batch_exists(keys)
    held = client.batch_exists(keys, hold_s=2)
    assert present == 96
    assert held == 32  # a quarter of the pool
    assert writer.client.stats()["daemon"]["holds"]["refused"] > 0
