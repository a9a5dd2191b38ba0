"""A cluster at full load, with spilled pages and replicas, loses one node by kill -9 and one by a
drain."""

from collections.abc import Sequence
from contextlib import ExitStack

from harness.background import Background
from harness.clock import seconds
from harness.cluster import Daemon
from harness.fixtures import MakeCluster
from harness.pages import Pages, keys_of
from harness.spilling import BUDGET, PAGE, POOL, at_rest, set_slowly
from harness.waiting import eventually

from peercache_client import Status
from peercached.admin.client import AdminClient

BATCH = 64
COMMON = int(1.25 * POOL / PAGE)  # pages: more than one pool, less than two
OWN = 8


class BusyWorker(Background):
    """Reads all common pages over and over, and sets and removes some of its own in between."""

    def __init__(self, pages: Pages, name: str, keys: Sequence[bytes]) -> None:
        super().__init__(self._round)
        self._pages = pages
        self._batches = [keys[at : at + BATCH] for at in range(0, len(keys), BATCH)]
        self._own = keys_of(f"own pages of {name}", OWN)
        self.missed: set[bytes] = set()

    def _round(self) -> None:
        for keys in self._batches:
            found = self._pages.get(keys)
            self.missed |= {key for key, status in zip(keys, found, strict=True) if not status}
            self._pages.set(self._own)
            self._pages.client.remove(self._own)


def holders(daemon: Daemon, keys: Sequence[bytes]) -> dict[bytes, set[str]]:
    with AdminClient(str(daemon.admin_path)) as admin:
        return {
            key: {holder.node_id for holder in admin.locate("test", key).holders} for key in keys
        }


def missed_in_new_rounds(workers: Sequence[BusyWorker]) -> set[bytes]:
    for worker in workers:
        worker.wait_rounds(1)  # this one began earlier
        worker.missed.clear()
    for worker in workers:
        worker.wait_rounds(2)
    return set().union(*(worker.missed for worker in workers))


def test_at_full_load_a_death_costs_only_last_copies_and_a_drain_costs_nothing(
    make_cluster: MakeCluster,
) -> None:
    """The workers compare every byte, and the end of their blocks checks every deadline."""
    cluster = make_cluster(4, pool_size=POOL, spill_bytes_per_s=BUDGET, replica_share=0.1)
    a, _, leaving, dying = cluster.daemons
    keys = keys_of("set at a", COMMON)
    with ExitStack() as stack:
        pages = [
            stack.enter_context(Pages(daemon.socket_path, page_bytes=PAGE, timeout_s=seconds(2.0)))
            for daemon in cluster.daemons[:2]
        ]
        set_slowly(a, pages[0], keys)
        eventually(lambda: at_rest(a), 30)
        # From here on nothing has to be evicted.
        spare, keys = keys[-BATCH:], keys[:-BATCH]
        assert set(pages[0].client.remove(spare)) <= {Status.ok, Status.absent}
        workers = [
            stack.enter_context(BusyWorker(each, daemon.node_id, keys))
            for each, daemon in zip(pages, cluster.daemons, strict=False)
        ]
        evicted = missed_in_new_rounds(workers)
        assert len(evicted) < COMMON / 4, "the evictor may have been quicker with a few pages"

        places = holders(a, keys)
        at_the_dying = {key for key, names in places.items() if dying.node_id in names}
        assert at_the_dying
        dying.kill()
        a.wait_members(["a", "b", leaving.node_id])
        lost = missed_in_new_rounds(workers) - evicted
        # Some may have moved to it, or on from there, since the list was made.
        elsewhere = {key for key, names in holders(a, sorted(lost)).items() if names}
        assert not elsewhere, f"it had {len(at_the_dying)} pages"

        drain = leaving.drain(stay=False)
        assert drain["complete"], drain
        assert drain["handed_pages"] > 0
        a.wait_members(["a", "b"])
        for worker in workers:
            worker.wait_rounds(2)
            assert worker.missed <= lost | evicted, "from before the drain until after it"
