"""Pages with the same key and other bytes at another node are counted, and that node is named."""

from __future__ import annotations

from harness.cluster import Daemon
from harness.ctl import ctl_process
from harness.fixtures import MakeCluster
from harness.pages import keys_of
from harness.scrape import Samples, scrape
from harness.waiting import eventually

from peercache_client import Client
from peercached.admin.status import Status

PAGE = 4 << 10
PAGES = 80


def status(daemon: Daemon) -> Status:
    return Status.model_validate(daemon.status())


def sets(daemon: Daemon, keys: list[bytes], byte: int, length: int = PAGE) -> None:
    with Client(str(daemon.socket_path), "test") as client:
        region = client.alloc(PAGE)
        region.view[:] = bytes([byte]) * PAGE
        assert all(client.batch_set(keys, region, [0] * len(keys), [length] * len(keys)))


def compared(daemon: Daemon) -> dict[str, tuple[int, int]]:
    members = status(daemon).membership.members
    return {m.node_id: (m.keys_compared, m.keys_differed) for m in members if not m.is_self}


def test_a_node_whose_workers_set_other_bytes_is_named_by_those_that_agree(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster(3, replica_share=0, spill_bytes_per_s=0, member_ttl_s=30)
    a, b, wrong = cluster.daemons
    keys = keys_of("page", PAGES)
    for known, (daemon, byte) in enumerate(((b, 1), (wrong, 2), (a, 1))):
        eventually(lambda: status(daemon).copies.records >= known * PAGES)  # noqa: B023
        sets(daemon, keys, byte)
    assert compared(b) == {"a": (0, 0), "c": (0, 0)}, "it was the first"
    assert compared(wrong) == {"a": (0, 0), "b": (PAGES, PAGES)}
    assert compared(a) == {"b": (PAGES, 0), "c": (PAGES, PAGES)}

    (found,) = [one for one in status(a).health if one.code == "other_bytes"]
    assert f"{PAGES} of {PAGES} pages" in found.sentence and "at c under" in found.sentence
    for daemon in (b, wrong):
        assert not [one for one in status(daemon).health if one.code == "other_bytes"]
    assert f"{PAGES} of {2 * PAGES}" in ctl_process(a, "namespaces").stdout
    told = Samples(scrape(a))
    (namespace,) = status(a).namespaces
    assert told("namespace_compared_keys_total", namespace_id=namespace.id) == 2 * PAGES
    assert told("namespace_differed_keys_total", namespace_id=namespace.id) == PAGES


def test_another_length_is_other_bytes_and_workers_of_one_node_are_compared(
    make_cluster: MakeCluster,
) -> None:
    a, b = make_cluster(2, replica_share=0, spill_bytes_per_s=0, member_ttl_s=30).daemons
    keys = keys_of("page", 8)
    sets(a, keys, 1)
    eventually(lambda: status(b).copies.records >= len(keys))
    sets(b, keys, 1, PAGE // 2)
    assert compared(b) == {"a": (8, 8)}
    turns = 130
    for _ in range(turns):
        sets(a, keys, 2)
    assert compared(a) == {"b": (0, 0)}
    (me,) = [one for one in status(a).membership.members if one.is_self]
    of_those = -(-turns * len(keys) // 17)
    assert (me.keys_compared, me.keys_differed) == (of_those, of_those)
    assert not [one for one in status(a).health if one.code == "other_bytes"]
    assert f"{of_those} of {of_those}" in ctl_process(a, "namespaces").stdout
