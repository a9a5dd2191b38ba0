"""Pages come back unchanged: batches, keys and statuses, against a stand-in daemon."""

import pytest
from harness import ipc_stand_in as ipc
from harness.clock import now_s, seconds
from harness.ipc_stand_in import IpcStandIn
from harness.waiting import eventually

from peercache_client import Client, Status, wire


def test_pages_come_back_byte_for_byte(client: Client) -> None:
    region = client.alloc(1 << 16)
    region.view[:3000] = bytes(i * 7 & 0xFF for i in range(3000))
    assert client.batch_set(["a", b"b"], region, [0, 1000], [1000, 2000]) == [Status.ok] * 2
    got = client.batch_get([b"b", "x", "a"], region, [10000, 20000, 30000], [2000, 1, 1000])
    assert got == [Status.ok, Status.absent, Status.ok]
    assert region.view[10000:12000] == region.view[1000:3000]
    assert region.view[30000:31000] == region.view[:1000]


def test_a_batch_may_use_several_regions(client: Client) -> None:
    one, two = client.alloc(4096), client.alloc(4096)
    one.view[:4] = b"page"
    assert all(client.batch_set(["k"], one, [0], 4))
    assert all(client.batch_get(["k", "k"], [two, one], [100, 200], 4))
    assert bytes(two.view[100:104]) == bytes(one.view[200:204]) == b"page"


def test_a_status_is_true_only_for_ok() -> None:
    assert [status for status in Status if status] == [Status.ok]
    assert not Status.absent
    number: int = Status.absent
    assert number == 1
    assert f"{Status.no_daemon}, {Status.ok:>4}, {Status.stale!s}" == "no_daemon,   ok, stale"


def test_a_status_of_a_newer_daemon_is_an_error() -> None:
    from peercache_client.status import STATUS_OF_BYTE

    assert STATUS_OF_BYTE[99] is Status.error
    assert STATUS_OF_BYTE[13] is Status.region_lost


def test_exists_counts_the_leading_run_and_contains_shows_each(client: Client) -> None:
    for key in ("a", "b", "d"):
        assert client.set(key, b"page")
    assert client.batch_exists(["a", "b", "c", "d"]) == 2
    assert client.contains(["a", "b", "c", "d"]) == [True, True, False, True]
    assert client.batch_exists(["c", "a"]) == 0
    assert client.batch_exists([]) == 0
    assert client.contains([]) == []


def test_text_and_bytes_name_the_same_key_whatever_the_script(client: Client) -> None:
    for text in ("plain", "größe", "鍵", "\x7f\x00"):
        assert client.set(text, text.encode() * 3)
        assert client.get(text.encode(), len(text.encode()) * 3) == text.encode() * 3
    assert client.contains(["plain", b"plain", "größe", "größe".encode(), "鍵"]) == [True] * 5


def test_set_and_get_of_single_pages(client: Client) -> None:
    assert client.set("k", b"content") is Status.ok
    assert client.get("k", 7) == b"content"
    assert client.get("k", 6) is None
    assert client.get("other", 7) is None


def test_a_get_need_not_know_the_length(client: Client) -> None:
    client.set("k", b"content")
    client.set("long", b"x" * 5000)
    assert client.lengths(["k", "other", "long"]) == [7, 0, 5000]
    assert client.get("k") == b"content"
    assert client.get("long") == b"x" * 5000
    assert client.get("other") is None
    assert client.lengths([]) == []


def test_the_hold_time_and_the_page_of_a_question_travel(
    client: Client, daemon: IpcStandIn
) -> None:
    client.set("k", b"content")
    assert client.batch_exists(["k"], hold_s=1.0, page_tokens=64) == 1
    assert client.contains(["k", "l"], page_tokens=64, page_keys=160) == [True, False]
    assert [request.flags for request in daemon.requests if request.op == ipc.EXISTS][-2:] == [
        wire.Flag.hold | wire.Flag.page,
        wire.Flag.bitmap | wire.Flag.page,
    ]


def test_removed_pages_are_gone(client: Client) -> None:
    client.set("k", b"content")
    assert client.remove(["k", "k"]) == [Status.ok, Status.absent]
    assert client.batch_exists(["k"]) == 0


def test_clear_returns_false_when_a_node_was_not_reached(
    client: Client, daemon: IpcStandIn
) -> None:
    client.set("k", b"content")
    assert client.clear() is True
    assert client.batch_exists(["k"]) == 0
    daemon.unreached = b"node n3 does not answer"
    assert client.clear() is False


def test_namespaces_do_not_meet(client: Client, daemon: IpcStandIn) -> None:
    client.set("k", b"content")
    with Client(daemon.path, "elsewhere") as other:
        assert other.batch_exists(["k"]) == 0


def test_the_parent_and_the_deadline_travel(client: Client, daemon: IpcStandIn) -> None:
    region = client.alloc(4096)
    client.batch_set(["k"], region, [0], 1, parent="the parent", timeout_s=3)
    (request,) = daemon.asked(ipc.SET)
    assert request.parent == b"the parent"
    assert 2000 < request.deadline_ms <= 3001
    client.batch_exists(["k"], parent=b"p")
    client.contains(["k"], parent="q")
    assert [one.parent for one in daemon.asked(ipc.EXISTS)] == [b"p", b"q"]


def test_a_bad_key_costs_only_its_own_page(client: Client) -> None:
    region = client.alloc(4096)
    keys = ["a", "", "k" * 4097, "k" * 4096]
    expected = [Status.ok, Status.bad_key, Status.bad_key, Status.ok]
    assert client.batch_set(keys, region, [0] * 4, 1) == expected


def test_a_key_of_megabytes_never_travels(client: Client, daemon: IpcStandIn) -> None:
    region = client.alloc(4096)
    keys = ["a", "k" * (100 << 20), "b"]
    expected = [Status.ok, Status.bad_key, Status.ok]
    assert client.batch_set(keys, region, [0] * 3, 1) == expected
    assert client.contains(keys) == [True, False, True]


def test_batches_beyond_a_frame_are_split_and_stay_a_chain(
    client: Client, daemon: IpcStandIn
) -> None:
    count = wire.PAGES_MAX + 10
    keys = [f"{i}" for i in range(count)]
    region = client.alloc(1 << 20)
    region.view[:] = bytes(range(256)) * 4096
    statuses = client.batch_set(keys, region, list(range(count)), 1, parent="first parent")
    assert statuses == [Status.ok] * count
    first, second = daemon.asked(ipc.SET)
    assert (first.count, second.count) == (wire.PAGES_MAX, 10)
    assert (first.parent, second.parent) == (b"first parent", keys[wire.PAGES_MAX - 1].encode())
    assert second.offsets == list(range(wire.PAGES_MAX, count))
    assert client.batch_exists(keys) == count
    client.remove([keys[wire.PAGES_MAX + 3]])
    assert client.batch_exists(keys) == wire.PAGES_MAX + 3
    assert client.contains(keys).index(False) == wire.PAGES_MAX + 3
    client.remove([keys[5]])
    asked = len(daemon.asked(ipc.EXISTS))
    assert client.batch_exists(keys) == 5
    assert len(daemon.asked(ipc.EXISTS)) == asked + 1, "behind a hole nothing is asked"
    assert client.batch_get(keys, region, list(range(count)), 1).count(Status.absent) == 2


def test_overlapping_pages_in_two_frames_are_bad_range(
    client: Client,
) -> None:
    count = wire.PAGES_MAX + 2
    keys = [f"{i}" for i in range(count)]
    region = client.alloc(1 << 20)
    region.view[:count] = bytes(i % 251 for i in range(count))
    assert all(client.batch_set(keys, region, list(range(count)), 1))
    # From a second region, the last two pages overlap the first and the third page.
    other = client.register_memory(region.address, 8)
    offsets = [*range(2, count), 2, 4]
    statuses = client.batch_get(keys, [region] * (count - 1) + [other], offsets, 1)
    assert [i for i, status in enumerate(statuses) if not status] == [count - 2, count - 1]
    assert statuses[-2:] == [Status.bad_range] * 2
    assert region.view[2] == 0 and region.view[4] == 2


def test_long_keys_are_split_by_their_bytes(client: Client, daemon: IpcStandIn) -> None:
    keys = [f"{i:04096}" for i in range(9000)]
    assert client.contains(keys) == [False] * 9000
    requests = daemon.asked(ipc.EXISTS)
    assert sum(request.count for request in requests) == 9000
    assert len(requests) == 3


def test_a_reply_in_pieces_is_put_together(client: Client, daemon: IpcStandIn) -> None:
    client.set("k", b"content")
    daemon.piece_bytes = 7
    assert client.contains(["k"] * 100) == [True] * 100
    daemon.stats = b'{"long": "' + b"x" * 300_000 + b'"}'
    daemon.piece_bytes = 10_000
    assert len(client.stats()["daemon"]["long"]) == 300_000
    assert client.get("k", 7) == b"content"


def test_stats_are_the_daemons_and_the_clients(client: Client, daemon: IpcStandIn) -> None:
    daemon.stats = b'{"pages": 5}'
    stats = client.stats()
    assert stats["connected"] is True
    assert stats["daemon"] == {"pages": 5}
    daemon.stats = b"not json"
    assert client.stats()["daemon"] is None


@pytest.mark.parametrize("wrong", [{"request_id": 77}, {"body_bytes": 1 << 31}], ids=str)
def test_a_reply_that_makes_no_sense_ends_the_connection(
    client: Client, daemon: IpcStandIn, wrong: dict[str, int]
) -> None:
    region = client.alloc(4096)
    region.view[:4] = b"page"
    assert all(client.batch_set(["k"], region, [0], 4))
    daemon.wrong = wrong
    began = now_s()
    assert client.batch_get(["k"], region, [8], 4, timeout_s=seconds(30)) == [Status.no_daemon]
    assert now_s() - began < seconds(10)
    daemon.wrong = {}
    eventually(client.ping)
    assert client.batch_get(["k"], region, [8], 4) == [Status.ok]
