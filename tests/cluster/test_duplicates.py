"""A page that another node has, too, is one of the first to be evicted."""

import time

from harness.cluster import Daemon
from harness.fixtures import MakeCluster
from harness.pages import Pages, keys_of
from harness.waiting import eventually

from peercached.admin.client import AdminClient

PAGE = 64 << 10
PAGES = 64
APART_S = 0.5


def is_here(daemon: Daemon, pages: Pages, keys: list[bytes]) -> bool:
    """Whether all of them are found, in this daemon's pool. A get of a single page."""
    before = daemon.status()["operations"]["get_local"]
    assert pages.has(keys)
    return bool(daemon.status()["operations"]["get_local"] == before + len(keys))


def test_a_page_that_another_node_has_too_goes_before_younger_ones(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster(2, replica_share=0, spill_bytes_per_s=0)
    here = cluster[0]
    mine, theirs = (daemon.attach(page_bytes=PAGE) for daemon in cluster.daemons)
    oldest, older, both = (keys_of(name, PAGES) for name in ("oldest", "older", "both"))
    assert all(theirs.set(both))
    eventually(lambda: here.status()["copies"]["records"] >= PAGES)
    assert all(mine.set(oldest))
    aged = time.monotonic() + APART_S
    eventually(lambda: time.monotonic() > aged)
    assert all(mine.set(older))
    assert all(mine.set(both))
    assert here.status()["pool"]["keys"] == 3 * PAGES
    with AdminClient(str(here.admin_path)) as admin:
        assert admin.evict_coldest(2 * PAGES * PAGE).pages == 2 * PAGES
    assert here.status()["pool"]["keys"] == PAGES
    assert is_here(here, mine, older)
    assert not is_here(here, mine, both), "only the other node has them now"
