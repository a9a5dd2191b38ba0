"""A holder cannot see an RDMA READ, so readers report it, and it keeps pages in use."""

import itertools

from harness.fixtures import MakeCluster
from harness.pages import keys_of
from harness.waiting import eventually

USED = 8
POOL, POOL_PAGES = "8MiB", 120
ROUND = POOL_PAGES // 2  # pages that are set between two checks


def test_pages_read_by_peers_stay_while_the_pool_turns_over(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(
        2, pool_size=POOL, each=[{"device_names": "rxe0"}, {"device_names": "rxe1"}]
    )
    holder, reader = cluster.daemons
    setting, getting = holder.attach(), reader.attach(timeout_s=20)
    used, unused = keys_of("used", USED), keys_of("unused", USED)
    assert all(setting.set(used))
    assert all(setting.set(unused))

    def told() -> int:
        return int(holder.status()["operations"]["used_elsewhere"])

    def in_use() -> bool:
        """Reads the used pages. True once the holder has heard of that."""
        assert getting.has(used), f"evicted while in use, in round {number}"
        return told() >= before + USED

    for number in itertools.count():
        before = told()
        eventually(in_use, what="the holder has heard of it")
        if holder.status()["pool"]["evictions"] > 3 * POOL_PAGES:
            break
        assert all(setting.set(keys_of(f"round {number}", ROUND)))
    assert not any(getting.get(unused)), "what nobody reads goes"
