"""Pages between daemons with and without RDMA: the same bytes, and status names the protocol."""

import itertools
import random

import pytest
from harness.clock import PACE
from harness.cluster import Cluster, Daemon
from harness.pages import keys_of
from harness.waiting import eventually

from peercache_client import Client

MIB = 1 << 20


def rail_bytes(daemon: Daemon) -> list[int]:
    return [rail["bytes"] for rail in daemon.status()["transport"]["rails"]]


def bytes_from(reader: Daemon, holder: Daemon) -> tuple[str, int]:
    """(engine, bytes) of the pages that `reader` has read from `holder`."""
    (peer,) = [peer for peer in reader.status()["transfer"] if peer["node_id"] == holder.node_id]
    return peer["engine"], peer["bytes"]


def test_every_pair_reads_and_status_names_the_protocol(mixed: Cluster) -> None:
    pages = {daemon.node_id: daemon.attach(room_pages=16) for daemon in mixed.daemons}
    for holder, reader in itertools.permutations(mixed.daemons, 2):
        keys = keys_of(f"from {holder.node_id} to {reader.node_id}", 16)
        assert all(pages[holder.node_id].set(keys))
        _, before = bytes_from(reader, holder)
        assert pages[reader.node_id].has(keys)
        engine, after = bytes_from(reader, holder)
        assert after - before == 16 * 65_536
        both_have_it = "c" not in (holder.node_id, reader.node_id)
        assert engine == ("rdma" if both_have_it else "tcp")
        protocols = {
            member["node_id"]: member["protocol"]
            for member in reader.status()["membership"]["members"]
        }
        assert protocols[holder.node_id] == engine


@pytest.mark.parametrize("count", [8, pytest.param(32, marks=pytest.mark.slow)])
def test_large_reads_use_all_rails(mixed: Cluster, count: int) -> None:
    holder, reader, _ = mixed.daemons
    writing = holder.attach(page_bytes=MIB, room_pages=count)
    reading = reader.attach(page_bytes=MIB, room_pages=count)
    rounds = itertools.count()

    def both_have_a_share() -> bool:
        keys = keys_of(f"{count} striped {next(rounds)}", count)
        assert all(writing.set(keys))
        before = rail_bytes(reader)
        assert reading.has(keys)
        gained = [now - then for now, then in zip(rail_bytes(reader), before, strict=True)]
        assert sum(gained) == count * MIB
        return min(gained) >= count * MIB // 8

    # If a rail is silent for long on a busy machine, the reader avoids it for a while.
    eventually(both_have_a_share, what="both rails have a share of a read")


@pytest.mark.parametrize("count", [1000, pytest.param(5000, marks=pytest.mark.slow)])
def test_a_batch_of_many_pages(mixed: Cluster, count: int) -> None:
    holder, reader, _ = mixed.daemons
    sizes = [1 + number * 7 % 8192 for number in range(count)]
    keys = keys_of(f"{count} pages", count)
    shape = {"page_bytes": 8192, "room_pages": count, "timeout_s": 60}
    assert all(holder.attach(**shape).set(keys, sizes))
    reading = reader.attach(**shape)
    # On a busy processor an owner may hear of the pages, or answer, too late for one call.
    eventually(lambda: reading.has(keys, sizes), what="all of them are read")


@pytest.mark.parametrize("mib", [4, pytest.param(64, marks=pytest.mark.slow)])
def test_a_large_page(mixed: Cluster, mib: int) -> None:
    holder, reader, _ = mixed.daemons
    page = random.Random(mib).randbytes(mib * MIB)
    with (
        Client(str(holder.socket_path), namespace="huge", timeout_s=60 * PACE) as writing,
        Client(str(reader.socket_path), namespace="huge", timeout_s=60 * PACE) as reading,
    ):
        source = writing.alloc(len(page))
        source.view[:] = page
        assert all(writing.batch_set(["huge"], source, [0], len(page)))
        room = reading.alloc(len(page))
        assert all(reading.batch_get(["huge"], room, [0], len(page)))
        assert room.view == page
        assert all(writing.remove(["huge"]))
    eventually(lambda: not reader.status()["workers"], what="its worker has left")
