"""LMCache's storage manager with our adapter: the right bytes or a miss."""

from pathlib import Path
from typing import Any

import pytest
from harness import ipc_stand_in as ipc
from harness.waiting import eventually
from lmcache.v1.distributed import api
from lmcache.v1.distributed.api import MemoryLayoutDesc, ObjectKey
from storage_node import CHUNK_BYTES, MODEL, StorageNode, eventually_found, keys_of, layout

from peercache_client.lmcache.identity import make_key, make_layout_tag
from peercache_client.lmcache.l1_pages import Page, _parts


def test_chunks_that_one_server_stores_another_loads(make_node: Any, nodes: Any) -> None:
    first, second = (make_node(nodes[place].socket_path) for place in (0, 1))
    keys = keys_of("shared", 12)
    first.prefill(keys)
    assert first.counted()["store"] == {"ok": 12}
    eventually_found(second, keys)
    assert second.counted()["load"]["ok"] >= 12


def test_the_daemon_uses_l1_in_place(make_node: Any, nodes: Any) -> None:
    node: StorageNode = make_node(nodes[0].socket_path, l1_bytes=32 * CHUNK_BYTES)
    node.prefill(keys_of("in place", 4))
    assert node.found(keys_of("in place", 4)) == 4
    assert node.adapter.report_status()["in_place"] is True
    [worker] = [
        worker
        for worker in nodes[0].status()["workers"]
        if worker["region_bytes"] == 32 * CHUNK_BYTES
    ]
    assert worker["name"].startswith("lmcache pid ")


def test_private_l1_memory_is_copied(make_node: Any, nodes: Any) -> None:
    """By two clients: the second has every second part of 8 MiB."""
    large = layout(shape=(2, 4, 16, 64 * 64))  # 1 MiB
    first, second = (
        make_node(nodes[place].socket_path, l1_bytes=64 << 20, shared_memory=place == 1)
        for place in (0, 1)
    )
    keys = keys_of("private", 20)
    first.prefill(keys, large)
    assert first.counted()["store"] == {"ok": 20}
    eventually(lambda: second.found(keys, large) == 20, 20, "the chunks of the other node")
    assert first.found(keys, large) == 20
    assert first.adapter.report_status()["in_place"] is False
    workers = [one for one in nodes[0].status()["workers"] if one["region_bytes"] == 256 << 20]
    assert len(workers) == 2, "each client has staging memory"


def test_a_page_that_goes_after_the_lookup_is_a_miss(
    make_node: Any, nodes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    node: StorageNode = make_node(nodes[0].socket_path)
    keys = keys_of("going", 8)
    node.prefill(keys)
    pages = node.adapter._pages
    forecast = pages.forecast

    def present_and_then_gone(model: str, asked: Any, judged: Any) -> Any:
        answer = forecast(model, asked, judged)
        assert all(pages._models[MODEL].client.remove([asked[5]]))
        return answer

    monkeypatch.setattr(pages, "forecast", present_and_then_gone)
    assert node.found(keys) == 5
    assert node.counted()["load"] == {"ok": 7, "absent": 1}
    monkeypatch.undo()
    assert node.found(keys, policy="full") == 7, "those behind it are still there"


def test_a_touched_page_outlives_others(make_node: Any, one_daemon: Any) -> None:
    """LMCache 0.5.7 tells of chunks that its L1 serves."""
    one_daemon.start()
    node: StorageNode = make_node(one_daemon[0].socket_path, l1_bytes=64 << 20)
    large = layout(shape=(2, 4, 16, 64 * 64))  # 1 MiB, and the pool has 64
    touched, others = keys_of("touched", 4), keys_of("others", 4)
    node.prefill(touched, large)
    node.prefill(others, large)
    for turn in range(6):
        node.adapter.submit_touch(touched)
        node.adapter._touches.wait_idle()
        node.forget_l1()
        node.prefill(keys_of(f"more {turn}", 16), large)
    assert node.found(others, large) == 0
    assert node.found(touched, large) == 4


def test_a_page_of_another_length_is_a_miss(make_node: Any, nodes: Any) -> None:
    node: StorageNode = make_node(nodes[0].socket_path)
    keys = keys_of("short page", 4)
    node.prefill(keys[:2])
    client = node.adapter._pages._models[MODEL].client
    tag = make_layout_tag(layout().shapes, layout().dtypes)
    assert client.set(make_key(keys[2], tag), b"short")
    assert node.found(keys) == 2
    assert node.counted()["load"] == {"ok": 2, "length_mismatch": 1}


def test_chunks_behind_a_missing_one_are_found_where_lmcache_asks_for_them(
    make_node: Any, nodes: Any
) -> None:
    node: StorageNode = make_node(nodes[0].socket_path)
    keys = keys_of("hole", 6)
    node.prefill(keys[:2] + keys[3:])
    assert node.found(keys) == 2
    assert node.found(keys, policy="full") == 5
    assert node.counted()["load"] == {"ok": 7}, "no load of a chunk that is not there"


def test_each_rank_and_object_group_has_its_own_pages(make_node: Any, nodes: Any) -> None:
    node: StorageNode = make_node(nodes[0].socket_path)
    ranks = [ObjectKey.ComputeKVRank(2, rank, 2, rank) for rank in (0, 1)]
    rows = [
        keys_of("rows", 4, kv_rank=rank, object_group_id=group)
        for group in (0, 1)
        for rank in ranks
    ]
    for row in rows:
        node.prefill(row)
    for row in rows:
        assert node.found(row) == 4
    client = node.adapter._pages._models[MODEL].client
    tag = make_layout_tag(layout().shapes, layout().dtypes)
    assert all(client.remove([make_key(rows[2][1], tag)]))
    node.forget_l1()
    handle = node.begin_prefetch([key for row in rows for key in row])
    assert node.hits(handle, rows=len(rows)) == [[0], [0], [0], [0]]


def test_several_models_share_one_server(make_node: Any, nodes: Any) -> None:
    node: StorageNode = make_node(nodes[0].socket_path)
    prompts = [keys_of("models", 3, model_name=f"model {number}") for number in range(3)]
    for keys in prompts[:2]:
        node.prefill(keys)
    assert [node.found(keys) for keys in prompts] == [3, 3, 0]


def test_more_models_than_there_is_room_for_share_nothing(make_node: Any, nodes: Any) -> None:
    node: StorageNode = make_node(nodes[0].socket_path)
    prompts = [keys_of("many", 1, model_name=f"model {number}") for number in range(17)]
    for keys in prompts:
        node.prefill(keys)
    assert node.counted()["store"] == {"ok": 16, "no_daemon": 1}
    assert node.found(prompts[0]) == 1
    assert node.found(prompts[16]) == 0


def test_lookups_are_one_request_to_the_daemon(make_node: Any, stand_in: Any) -> None:
    """With one key for a chunk. Before the first page, the server may also have a serializer."""
    node: StorageNode = make_node(stand_in.path)
    assert node.found(keys_of("first", 16)) == 0
    node.prefill(keys_of("a page", 1))
    assert node.found(keys_of("batch", 16)) == 0
    assert [len(asked.keys) for asked in stand_in.asked(ipc.EXISTS)] == [32, 16]


@pytest.mark.parametrize(
    "hints",
    [{}, {0: MemoryLayoutDesc([], [])}, {0: layout(shape=(1, 1, 1, 1))}, {1: layout()}],
    ids=["none", "empty", "wrong", "of another group"],
)
def test_a_lookup_does_not_depend_on_its_hint(make_node: Any, nodes: Any, hints: Any) -> None:
    """LMCache calls it advisory. Its own tools leave it empty."""
    node: StorageNode = make_node(nodes[0].socket_path)
    keys = keys_of("hint", 4)
    node.prefill(keys[:3])
    assert node.looked_up(keys, hints) == [0, 1, 2]


def test_long_prompts_travel_in_requests_of_bounded_size(make_node: Any, stand_in: Any) -> None:
    """In order, because the daemon evicts the last pages of a prompt first."""
    node: StorageNode = make_node(stand_in.path)
    keys = keys_of("long", 200)
    node.prefill(keys)
    first, second = stand_in.asked(ipc.SET)
    assert (len(first.keys), len(second.keys), second.parent) == (128, 72, first.keys[-1])
    tag = make_layout_tag(layout().shapes, layout().dtypes)
    assert first.keys + second.keys == [make_key(key, tag) for key in keys]
    assert node.found(keys) == 200


def test_a_page_larger_than_one_request_may_be_travels_alone() -> None:
    pages = [Page(b"%d" % number, 0, length) for number, length in enumerate([1, 300 << 20, 1, 1])]
    assert [[page.key for page in part] for part in _parts(pages, 256 << 20)] == [
        [b"0"],
        [b"1"],
        [b"2", b"3"],
    ]


def test_a_server_that_only_stores_finds_nothing(make_node: Any, nodes: Any) -> None:
    """So its engine computes all chunks, and the daemon compares their bytes with those of
    others."""
    plain: StorageNode = make_node(nodes[0].socket_path)
    canary: StorageNode = make_node(nodes[1].socket_path, params={"stores_only": True})
    keys = keys_of("canary", 4)
    canary.prefill(keys)
    assert canary.looked_up(keys, {0: layout()}) == []
    assert plain.looked_up(keys, {0: layout()}) == [0, 1, 2, 3]


@pytest.mark.parametrize("serde", ["aesgcm", "fp8"])
def test_servers_with_the_same_serializer_share_pages(
    make_node: Any, nodes: Any, tmp_path: Path, serde: str
) -> None:
    """Neither they nor a server without a serializer take the other's bytes."""
    master = tmp_path / "master key"
    master.write_bytes(b"a secret of this test")
    entry = {"type": serde, "kwargs": {"master_key_path": str(master)} if serde == "aesgcm" else {}}
    first, second = (make_node(nodes[place].socket_path, serde=entry) for place in (0, 1))
    plain: StorageNode = make_node(nodes[0].socket_path)
    of_coded, of_plain = keys_of(f"coded by {serde}", 4), keys_of(f"not coded by {serde}", 4)
    first.prefill(of_coded)
    assert first.counted()["store"] == {"ok": 4}
    assert first.found(of_coded) == 4
    eventually_found(second, of_coded)
    assert plain.found(of_coded) == 0
    plain.prefill(of_plain)
    assert plain.found(of_plain) == 4
    # Its lookup finds these, but its load asks for pages in the layout of its serializer.
    assert first.found(of_plain) == 0
    assert first.counted()["load"] == {"ok": 4, "absent": 4}


@pytest.mark.skipif(not hasattr(api, "MemoryTags"), reason="LMCache asks since 0.5.7")
def test_the_pages_are_in_memory_that_hosts_share(make_node: Any, nodes: Any) -> None:
    tags = make_node(nodes[0].socket_path).adapter.get_memory_tags()
    assert (tags.segment, tags.residency) == ("dram", "remote")


def test_closing_leaves_the_pages_in_the_cache(make_node: Any, nodes: Any) -> None:
    keys = keys_of("outlived", 4)
    first: StorageNode = make_node(nodes[0].socket_path)
    first.prefill(keys)
    first.close()
    assert make_node(nodes[0].socket_path).found(keys) == 4


def test_lmcache_can_drop_the_adapter_and_take_another(make_node: Any, nodes: Any) -> None:
    node: StorageNode = make_node(nodes[0].socket_path)
    keys = keys_of("dropped", 4)
    node.prefill(keys)
    [(descriptor, _)] = node.manager.l2_adapters()
    node.manager.delete_l2_adapter(descriptor.index)
    assert node.found(keys) == 0
    node.manager.add_l2_adapter(descriptor.config)
    assert node.found(keys) == 4


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"tennant": "acme"}, "did you mean 'tenant'"),
        ({"tenant": "a\nb"}, "tenant is 'a\\\\nb': printable text"),
        ({"timeout_s": 0}, "timeout_s is 0"),
        ({"stores_only": 1}, "stores_only is 1: true or false"),
    ],
    ids=str,
)
def test_a_wrong_entry_stops_the_start(
    make_node: Any, nodes: Any, params: dict[str, Any], text: str
) -> None:
    with pytest.raises(ValueError, match=text):
        make_node(nodes[0].socket_path, params=params)
