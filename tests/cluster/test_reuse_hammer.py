"""Readers hammer keys while the holder's pool is far too small, so slots are constantly reused.

The claim: the right bytes or a miss. The process that counts a hit has compared every byte of the
page.
"""

from collections import Counter

import pytest
from harness.clock import seconds
from harness.fixtures import MakeCluster
from harness.hammer import Hammer

FAULTS = "seed=11,corrupt=0.01,truncate=0.01,drop=0.01,delay=0.02,reset=0.002"


# LARGE pages exceed the socket buffers, so slots are reused while they are being sent. SMALL pages
# allow many more reads in the same time.
LARGE = {"sizes": "20000,262144,1048576", "pool_size": "16MiB"}
SMALL = {"sizes": "4096,20000,65536", "pool_size": "2MiB"}


def hammer_for(
    make_cluster: MakeCluster,
    *,
    reads: int,
    within_s: float,
    sizes: str,
    pool_size: str,
    faults: str,
) -> Counter[str]:
    """Reads pages on two nodes while two writers on the third keep evicting them."""
    cluster = make_cluster(
        3, pool_size=pool_size, replica_share=0.5, **({"faults": faults} if faults else {})
    )
    holder, *readers_of = cluster.daemons
    shape: dict[str, int | str] = {"keys": 96, "sizes": sizes}
    writers = [Hammer("write", holder.socket_path, seed=seed, **shape) for seed in (1, 2)]
    readers = [
        Hammer(
            "read",
            daemon.socket_path,
            seed=seed,
            pages=reads / 4,
            seconds=seconds(within_s),
            **shape,
        )
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
    pool = holder_now["pool"]
    assert pool["evictions"] > 3 * pool["keys"], "slots were hardly reused: no test at all"
    for daemon in cluster.daemons:
        assert daemon.alive
    # A reader that gets a wrong byte fails, so none did.
    print(f"{counts.total()} reads, wrong bytes 0, {dict(counts)}")  # pytest -rP shows it
    return counts


@pytest.mark.parametrize(
    ("shape", "reads", "faults"),
    [
        pytest.param(LARGE, 4_000, "", id="large pages"),
        pytest.param(SMALL, 10_000, FAULTS, id="small pages and faults"),
    ],
)
def test_a_reused_slot_is_never_served(
    make_cluster: MakeCluster, shape: dict[str, str], reads: int, faults: str
) -> None:
    counts = hammer_for(make_cluster, reads=reads, within_s=15, faults=faults, **shape)
    assert counts["ok"] > 500
    assert counts["ok"] < counts.total()


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("faults", ["", FAULTS], ids=["healthy", "with faults"])
@pytest.mark.parametrize("shape", [LARGE, SMALL], ids=["large pages", "small pages"])
def test_a_reused_slot_is_never_served_in_millions_of_reads(
    make_cluster: MakeCluster, shape: dict[str, str], faults: str
) -> None:
    counts = hammer_for(make_cluster, reads=2_000_000, within_s=400, faults=faults, **shape)
    assert counts["ok"] > 10_000
