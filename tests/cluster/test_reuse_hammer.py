"""Readers hammer keys while the holder's pool is far too small: slots are reused all the time.

The claim is DESIGN's first rule: the right bytes or a miss. Every page that counts as a hit
has been compared byte for byte by the process that got it.
"""

from collections import Counter

import pytest
from harness.fixtures import MakeCluster
from harness.hammer import Hammer

FAULTS = "seed=11,corrupt=0.01,truncate=0.01,drop=0.01,delay=0.02,reset=0.002"


def hammer_for(
    make_cluster: MakeCluster, *, reads: int, seconds: float, sizes: str, faults: str
) -> Counter[str]:
    """Reads pages on two nodes while two writers on the third keep its pool turning over."""
    cluster = make_cluster(3, pool_size="2MiB", **({"faults": faults} if faults else {}))
    holder, *readers_of = cluster.daemons
    shape: dict[str, int | str] = {"keys": 96, "sizes": sizes}
    writers = [Hammer("write", holder.socket_path, seed=seed, **shape) for seed in (1, 2)]
    readers = [
        Hammer("read", daemon.socket_path, seed=seed, pages=reads / 4, seconds=seconds, **shape)
        for seed, daemon in enumerate([*readers_of, *readers_of], start=3)
    ]
    for process in (*writers, *readers):
        process.wait_ready()
    counts: Counter[str] = Counter()
    for reader in readers:
        counts.update(reader.result()["pages"])
    for writer in writers:
        writer.stop()
    holder_now = holder.status()
    assert holder_now["pool"]["evictions"] > 1000, "slots were hardly reused: no test at all"
    for daemon in cluster.daemons:
        assert daemon.alive
    return counts


@pytest.mark.parametrize("faults", ["", FAULTS], ids=["healthy", "with faults"])
def test_a_reused_slot_is_never_served(make_cluster: MakeCluster, faults: str) -> None:
    counts = hammer_for(
        make_cluster, reads=20_000, seconds=20, sizes="4096,20000,65536", faults=faults
    )
    assert counts["ok"] > 1000
    assert counts["ok"] < counts.total()


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("faults", ["", FAULTS], ids=["healthy", "with faults"])
@pytest.mark.parametrize("sizes", ["4096", "4096,20000,65536", "131072,262144"])
def test_a_reused_slot_is_never_served_in_millions_of_reads(
    make_cluster: MakeCluster, sizes: str, faults: str
) -> None:
    counts = hammer_for(make_cluster, reads=1_000_000, seconds=280, sizes=sizes, faults=faults)
    assert counts["ok"] > 10_000
