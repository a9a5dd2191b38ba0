"""Processes die, hang and return: that may cost misses, but never wrong bytes or a stall."""

import threading

from harness.background import Background
from harness.call_times import SLACK_S
from harness.fixtures import MakeCluster
from harness.hammer import Hammer
from harness.pages import keys_of
from harness.waiting import eventually

from peercache_client import Status
from peercache_client.session import SILENCE_TIMEOUT_S

# --- daemons that die -------------------------------------------------------------------------


def test_a_dead_owner_costs_no_misses(make_hosts: MakeCluster) -> None:
    cluster = make_hosts(3)
    keys = keys_of("owned by all", 64)
    assert all(cluster[0].attach().set(keys))
    reader = cluster[2].attach()
    cluster[1].kill()
    assert reader.client.batch_exists(keys) == 64
    assert reader.has(keys)
    cluster.wait_complete()
    assert reader.has(keys)


def test_pages_of_a_dead_holder_miss_and_can_be_set_again(make_hosts: MakeCluster) -> None:
    cluster = make_hosts(3)
    keys = keys_of("held by one", 64)
    assert all(cluster[1].attach().set(keys))
    writer, reader = cluster[0].attach(), cluster[2].attach()
    assert reader.has(keys)
    cluster[1].kill()
    assert not any(reader.get(keys))
    assert all(writer.set(keys))
    assert reader.has(keys)
    cluster.wait_complete()
    assert reader.has(keys)


def test_the_death_of_the_head_leaves_the_others_working(make_hosts: MakeCluster) -> None:
    cluster = make_hosts(3)
    writer, reader = cluster[1].attach(), cluster[2].attach()
    before, after = keys_of("before", 64), keys_of("after", 64)
    assert all(writer.set(before))
    cluster[0].kill()
    assert reader.has(before)
    assert all(writer.set(after))
    assert reader.has(after)
    cluster.start_again(cluster[0])
    assert reader.has(before)
    assert reader.has(after)


def test_nothing_half_written_is_served_when_a_daemon_dies_in_mid_set(
    make_hosts: MakeCluster,
) -> None:
    """kill -9 hits the holder while a worker sets pages that another node keeps reading."""
    cluster = make_hosts(2, pool_size="32MiB")
    page_bytes = 1 << 20
    keys = keys_of("torn", 8)
    writer = cluster[1].attach(page_bytes=page_bytes, room_pages=8)
    reader = cluster[0].attach(page_bytes=page_bytes, room_pages=8)

    def write() -> None:
        writer.client.remove(keys)
        writer.set(keys)

    for _ in range(2):
        with Background(write) as writing, Background(lambda: reader.get(keys)) as reading:
            writing.wait_rounds(5)
            cluster[1].kill()
            reading.wait_rounds(3)
            cluster.start_again(cluster[1])
            eventually(lambda: reader.client.batch_exists(keys) == 8, 20)


def test_workers_of_a_dead_daemon_miss_at_once_and_reconnect(make_hosts: MakeCluster) -> None:
    cluster = make_hosts(1)
    keys = keys_of("reconnect", 16)
    pages = cluster[0].attach()
    assert all(pages.set(keys))
    cluster[0].kill()
    pages.calls.forget_longest()
    for _ in range(100):
        assert not any(pages.get(keys))
        assert not any(pages.set(keys))
        assert pages.client.batch_exists(keys) == 0
        assert not any(pages.client.contains(keys))
    pages.calls.check_none_waited()
    cluster[0].start()
    cluster[0].wait_ready()
    eventually(lambda: all(pages.set(keys)), what="the same client and region work again")
    assert pages.has(keys)


# --- daemons that hang ------------------------------------------------------------------------


def test_a_frozen_holder_costs_the_deadline_and_never_writes_afterwards(
    make_hosts: MakeCluster,
) -> None:
    cluster = make_hosts(2)
    page_bytes = 1 << 20
    keys = keys_of("frozen", 32)
    writer = cluster[1].attach(page_bytes=page_bytes, room_pages=32)
    reader = cluster[0].attach(page_bytes=page_bytes, room_pages=32, timeout_s=1.0)
    assert all(writer.set(keys))
    reading = threading.Event()

    def get() -> None:
        reading.set()
        frozen_statuses.append(reader.get(keys))

    frozen_statuses: list[list[Status]] = []
    with Background(get) as readings:
        readings.wait_rounds(2)  # makes sure that a transfer is in flight at the freeze
        cluster[1].freeze()
        eventually(lambda: not any(frozen_statuses[-1]), 10)
    reader.paint(0x3C)
    cluster[1].thaw()
    cluster[1].wait_ready()
    eventually(lambda: len(cluster[0].members()) == 2, 10)
    assert reader.painted(0x3C)
    eventually(lambda: all(reader.get(keys)) or all(writer.set(keys)), 15)


def test_after_one_deadline_a_frozen_holder_is_not_waited_for_again(
    make_hosts: MakeCluster,
) -> None:
    cluster = make_hosts(3, member_ttl_s=60, heartbeat_interval_s=1)
    theirs, others = keys_of("theirs", 16), keys_of("others", 16)
    assert all(cluster[1].attach().set(theirs))
    assert all(cluster[2].attach().set(others))
    reader = cluster[0].attach(timeout_s=4.0)
    assert reader.has(theirs)
    cluster[1].freeze()
    assert not any(reader.get(theirs))
    reader.calls.forget_longest()
    for _ in range(20):
        statuses = reader.get([*theirs, *others])
        assert not any(statuses[:16])
        assert all(statuses[16:])
        assert reader.client.batch_exists(others) == 16
        assert reader.client.batch_exists(theirs) == 0
    reader.calls.check_none_waited()
    cluster[1].thaw()
    eventually(lambda: all(reader.get(theirs)), 20, "its pages are hits again")


def test_frozen_owner_does_not_stall_lookups_for_its_rpc_timeout(make_hosts: MakeCluster) -> None:
    """The RPC timeout exceeds the workers' deadlines, so a lookup that waits for the owner
    misses."""
    cluster = make_hosts(3, member_ttl_s=60, heartbeat_interval_s=1, rpc_timeout_ms=60_000)
    batches = [keys_of(f"batch {number}", 16) for number in range(10)]
    writer = cluster[0].attach()
    for keys in batches:
        assert all(writer.set(keys))
    reader = cluster[2].attach(timeout_s=10.0)
    cluster[1].freeze()
    for keys in batches:
        # On a busy machine the holder may be suspect for a moment, which causes an immediate miss.
        eventually(lambda: all(reader.get(keys)), what="got without the frozen owner")  # noqa: B023
    reader.calls.check_none_waited()
    cluster[1].thaw()
    cluster.wait_complete()
    assert reader.has(batches[0])


def test_thawed_daemon_writes_nothing_for_a_get_past_its_deadline(make_hosts: MakeCluster) -> None:
    cluster = make_hosts(1)
    keys = keys_of("own", 64)
    pages = cluster[0].attach(timeout_s=0.5)
    assert all(pages.set(keys))
    cluster[0].freeze()
    assert not any(pages.get(keys))
    pages.paint(0x3C)
    cluster[0].thaw()
    cluster[0].wait_ready()
    eventually(lambda: pages.client.batch_exists(keys) == 64, 10)
    assert pages.painted(0x3C)
    assert pages.has(keys)


def test_late_write_after_a_mid_get_freeze_is_reported_region_lost(make_hosts: MakeCluster) -> None:
    """A daemon frozen between two pieces must not write the next piece. Within a piece nothing can
    stop the write."""
    cluster = make_hosts(1, pool_size="128MiB")
    page_bytes = 1 << 20
    keys = keys_of("own", 32)
    writer = cluster[0].attach(page_bytes=page_bytes, room_pages=32)
    assert all(writer.set(keys))
    # The client's longest wait for a daemon that hangs during a write.
    slack_s = SILENCE_TIMEOUT_S + SLACK_S
    for _ in range(3):
        pages = cluster[0].attach(
            page_bytes=page_bytes, room_pages=32, timeout_s=0.5, slack_s=slack_s
        )
        statuses: list[list[Status]] = []
        with Background(lambda: statuses.append(pages.get(keys))) as getting:  # noqa: B023
            getting.wait_rounds(3)
            cluster[0].freeze()
            eventually(lambda: not any(statuses[-1]), 10)  # noqa: B023
        pages.paint(0x3C)
        cluster[0].thaw()
        cluster[0].wait_ready()
        eventually(lambda: pages.client.batch_exists(keys) == 32, 10)  # noqa: B023
        if not pages.painted(0x3C):
            lost = [status for call in statuses for status in call if status == Status.region_lost]
            assert lost, "the memory was written to after the answer, and nobody said so"
            # The daemon resumes, so the write ends soon and the region becomes usable again.
            eventually(lambda: all(pages.get(keys)), 10)  # noqa: B023
            assert pages.has(keys)
        assert writer.has(keys)
    assert cluster[0].status()["ipc"]["given_up"] >= 3


# --- workers that die -------------------------------------------------------------------------


def test_a_worker_killed_in_mid_get_harms_nobody_and_leaves_nothing_behind(
    make_hosts: MakeCluster,
) -> None:
    cluster = make_hosts(2)
    writer = cluster[1].attach(page_bytes=1 << 20, room_pages=16)
    keys = [f"hammered/{number}".encode() for number in range(32)]
    assert all(writer.set(keys[:16]))
    assert all(writer.set(keys[16:]))
    witness = cluster[0].attach(page_bytes=1 << 20, room_pages=16)
    for _ in range(3):
        victims = [
            Hammer("read", cluster[0].socket_path, keys=32, sizes=1 << 20, seed=seed)
            for seed in range(2)
        ]
        for victim in victims:
            victim.wait_ready()
        assert witness.has(keys[:16])
        for victim in victims:
            victim.kill()
        assert witness.has(keys[16:])

    def only_we_are_left() -> bool:
        here = cluster[0].status()
        return here["ipc"]["connections"] == 1 and len(here["workers"]) == 1

    eventually(only_we_are_left, what="the dead workers' connections and regions are gone")
    eventually(lambda: cluster[1].status()["pool"]["pins"] == 0, what="no pin is left")
    assert cluster[0].status()["pool"]["reserved"] == 0
