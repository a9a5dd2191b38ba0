"""Hints of a request, where SGLang would hand them to its storage."""

from typing import Any

import pages
from controller_node import Shape
from sglang.srt.managers.kv_hints import KvHintAction, KvHintsEnvelope
from sglang.srt.mem_cache.hicache_storage import HiCacheStorageExtraInfo, PoolName


def envelope(kind: str, **payload: Any) -> KvHintsEnvelope:
    action = KvHintAction(action_id="a1", action_type=kind, action_version="1.0", payload=payload)
    return KvHintsEnvelope(protocol_version="1.0", message_id="m1", actions=[action])


def pieces(node: Any) -> int:
    """The daemon's pages of one page of SGLang."""
    return len(node.backend._forms[PoolName.KV].suffixes)


def retained(daemon: Any) -> int:
    return int(daemon.status()["hints"]["retained_pages"])


def test_hints_beside_a_lookup_are_about_its_pages(make_node: Any, nodes: Any) -> None:
    node = make_node(0, Shape(), model="hinted")
    hashes = pages.hashes("hinted", 6)
    source = pages.alloc(node.pool, 6)
    pages.fill(node.pool, source, "hinted")
    assert node.backend.batch_set_v1(hashes, source) == [True] * 6
    hints = {"kv_hints": envelope("kv.retain", seconds=60)}
    info = HiCacheStorageExtraInfo(prefix_keys=hashes[:2], extra_info=hints)
    before = retained(nodes[0])
    assert node.backend.batch_exists(hashes[2:], info) == 4
    node.backend._hints.wait_idle()
    assert retained(nodes[0]) == before + 6 * pieces(node), "the pages before those asked for, too"


def test_hints_may_come_without_a_lookup(make_node: Any, nodes: Any) -> None:
    node = make_node(0, Shape(), model="told")
    hashes = pages.hashes("told", 3)
    source = pages.alloc(node.pool, 3)
    pages.fill(node.pool, source, "told")
    assert node.backend.batch_set_v1(hashes, source) == [True] * 3
    before = retained(nodes[0])
    node.backend.hint(envelope("kv.retain", seconds=60), hashes)
    node.backend.hint(envelope("kv.fly"), hashes)
    node.backend.hint(object(), hashes)
    node.backend._hints.wait_idle()
    assert retained(nodes[0]) == before + 3 * pieces(node)
