"""The remote KV connector between nodes: it returns the right bytes, or fewer tokens."""

import mmap
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from harness.clock import now_s, seconds
from harness.cluster import Cluster
from harness.engine import PAGE_SIZE, Engine, future_of, mapping_of, tokens_of
from harness.fixtures import MakeCluster
from harness.waiting import eventually

from peercache_client import memory, notes
from peercache_client.connector import ConnectorBusy, ConnectorMetadata, RemoteKVConnector

MakeEngine = Callable[..., Engine]


# --- from node to node ------------------------------------------------------------------------


@pytest.mark.parametrize("shared", [True, False], ids=["in place", "copied"])
def test_one_engine_retrieves_pages_stored_by_another(
    three_nodes: Cluster, engine: MakeEngine, shared: bool
) -> None:
    name = f"from node to node {shared}"
    writer = engine(three_nodes[0], shared=shared, model_name=name)
    reader = engine(three_nodes[1], shared=shared, model_name=name)
    tokens = tokens_of(name, 8, more=5)
    assert reader.connector.num_external_matched_tokens("r", tokens) == 0
    # Page slots in any order. The prompt's last page is not full.
    pages = [9, 3, 60, 1, 2, 40, 7, 0]
    writer.compute(tokens, pages)
    mapping = [*mapping_of(pages), (20, slice(8 * PAGE_SIZE, 8 * PAGE_SIZE + 5))]
    future, end = writer.connector.store_kv_async("w", mapping, tokens)
    assert end == 8 * PAGE_SIZE
    assert future.result() == end
    writer.blank()  # the engine reuses the slots for other data
    assert reader.connector.num_external_matched_tokens("r", tokens) == end
    assert reader.retrieve("r", tokens, [5, 6, 30, 8, 9, 63, 62, 61]) == end


def test_in_place_and_copied_share_pages(three_nodes: Cluster, engine: MakeEngine) -> None:
    writer = engine(three_nodes[0], shared=False, model_name="both ways")
    reader = engine(three_nodes[1], shared=True, model_name="both ways")
    tokens = tokens_of("both ways", 4)
    assert writer.store("w", tokens, range(4)) == 4 * PAGE_SIZE
    assert reader.retrieve("r", tokens, range(4, 8)) == 4 * PAGE_SIZE


def test_a_prompt_is_stored_chunk_by_chunk_as_it_is_computed(
    three_nodes: Cluster, engine: MakeEngine
) -> None:
    writer = engine(three_nodes[0], model_name="chunks", chunk_pages=2)
    reader = engine(three_nodes[1], model_name="chunks", chunk_pages=3)
    tokens = tokens_of("chunks", 12)
    for first in range(0, 12, 4):
        pages = range(first, first + 4)
        writer.compute(tokens, pages, first)
        so_far = tokens[: (first + 4) * PAGE_SIZE]
        future, end = writer.connector.store_kv_async("w", mapping_of(pages, first), so_far)
        assert future.result() == end == len(so_far)
        assert reader.connector.num_external_matched_tokens("r", tokens) == end
    assert reader.retrieve("r", tokens, range(12)) == 12 * PAGE_SIZE


def test_retrieve_can_start_in_the_middle_of_a_prompt(
    three_nodes: Cluster, engine: MakeEngine
) -> None:
    writer, reader = (engine(node, model_name="rest") for node in three_nodes.daemons[:2])
    tokens = tokens_of("rest", 6)
    writer.store("w", tokens, range(6))
    future = reader.connector.retrieve_kv_async("r", mapping_of([7, 8], first=4), tokens)
    assert future.result() == 6 * PAGE_SIZE
    assert reader.right_pages(tokens, [7, 8], first=4) == 2


def test_pages_after_a_missing_page_are_not_retrieved(
    three_nodes: Cluster, engine: MakeEngine
) -> None:
    writer, reader = (engine(node, model_name="hole") for node in three_nodes.daemons[:2])
    tokens = tokens_of("hole", 6)
    writer.compute(tokens, range(6))
    for pages, first in ((range(3), 0), (range(4, 6), 4)):
        future, end = writer.connector.store_kv_async("w", mapping_of(pages, first), tokens)
        assert future.result() == end
    assert reader.connector.num_external_matched_tokens("r", tokens) == 3 * PAGE_SIZE
    assert reader.retrieve("r", tokens, range(6)) == 3 * PAGE_SIZE


def test_eagle_stores_a_page_only_once_its_next_token_exists(
    three_nodes: Cluster, engine: MakeEngine
) -> None:
    writer = engine(three_nodes[0], model_name="eagle", is_eagle=True)
    reader = engine(three_nodes[1], model_name="eagle", is_eagle=True)
    tokens = tokens_of("eagle", 4, more=1)
    writer.compute(tokens, range(4))
    future, end = writer.connector.store_kv_async("w", mapping_of(range(4)), tokens[:-1])
    assert future.result() == end == 3 * PAGE_SIZE
    future, end = writer.connector.store_kv_async("w", mapping_of([3], 3), tokens)
    assert future.result() == end == 4 * PAGE_SIZE
    assert reader.connector.num_external_matched_tokens("r", tokens) == 4 * PAGE_SIZE
    assert reader.connector.num_external_matched_tokens("r", tokens[:-1]) == 3 * PAGE_SIZE
    assert reader.retrieve("r", tokens, range(8, 12)) == 4 * PAGE_SIZE
    # With EAGLE the KV of a page's last token depends on the next token. Another next token
    # therefore means another page.
    other = [*tokens[:-1], tokens[-1] + 1]
    assert reader.connector.num_external_matched_tokens("o", other) == 3 * PAGE_SIZE
    plain = engine(three_nodes[1], model_name="eagle")
    assert plain.connector.num_external_matched_tokens("p", tokens) == 0


def test_many_requests_at_once(three_nodes: Cluster, engine: MakeEngine) -> None:
    engines = [engine(node, model_name="many", pages=256) for node in three_nodes.daemons]

    def one(number: int) -> None:
        tokens = tokens_of(f"many {number // 2}", 4)
        pages = range(number * 4, number * 4 + 4)
        node = engines[number % 3]
        node.compute(tokens, pages)
        future, _ = node.connector.store_kv_async(f"w{number}", mapping_of(pages), tokens)
        assert future.result() == 4 * PAGE_SIZE
        reader = engines[(number + 1) % 3]
        pages = range(128 + number * 4, 128 + number * 4 + 4)
        future = reader.connector.retrieve_kv_async(f"r{number}", mapping_of(pages), tokens)
        assert future.result() == 4 * PAGE_SIZE
        assert reader.right_pages(tokens, pages) == 4

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(one, range(32)))


# --- which engines share pages ----------------------------------------------------------------


@pytest.mark.parametrize(
    "other",
    [
        {"model_name": "another"},
        {"model_revision": "2"},
        {"namespace": "staging"},
        {"tenant": "one"},
        {"kv_cache_dtype": "float16"},
        {"layout": "page_first"},
        {"layers": 1, "page_bytes": 8192},
        {"tp_size": 2},
        {"tp_rank": 1, "tp_size": 2},
        {"pp_size": 2},
        {"pp_rank": 1, "pp_size": 2},
        {"attn_cp_size": 2},
        {"dcp_size": 2},
    ],
    ids=str,
)
def test_engines_that_differ_never_meet(
    three_nodes: Cluster, engine: MakeEngine, other: dict[str, Any]
) -> None:
    tokens = tokens_of("who shares", 2)
    assert engine(three_nodes[0]).store("w", tokens, range(2)) == 2 * PAGE_SIZE
    reader = engine(three_nodes[0], **other)
    assert reader.connector.num_external_matched_tokens("r", tokens) == 0
    assert reader.retrieve("r", tokens, range(2)) == 0
    assert reader.is_blank()
    like = engine(three_nodes[1])
    assert like.connector.num_external_matched_tokens("r", tokens) == 2 * PAGE_SIZE


def test_ranks_of_one_model_never_meet(three_nodes: Cluster, engine: MakeEngine) -> None:
    """Both ranks have pages of the same size, so only the rank differs."""
    tokens = tokens_of("ranks", 2)
    for kind in ("tp", "pp", "attn_cp", "dcp"):
        size = {f"{kind}_size": 2, "model_name": f"ranks {kind}"}
        engine(three_nodes[0], **size).store("w", tokens, range(2))
        other = engine(three_nodes[0], **size, **{f"{kind}_rank": 1})
        assert other.connector.num_external_matched_tokens("r", tokens) == 0, kind


def test_every_tp_rank_of_an_mla_model_has_the_same_pages(
    three_nodes: Cluster, engine: MakeEngine
) -> None:
    mla: dict[str, Any] = {"is_mla_model": True, "model_name": "mla", "tp_size": 4}
    tokens = tokens_of("mla", 2)
    writer, reader = (
        engine(three_nodes[0], tp_rank=0, **mla),
        engine(three_nodes[1], tp_rank=3, **mla),
    )
    reader.rank = 0
    assert writer.store("w", tokens, range(2)) == 2 * PAGE_SIZE
    assert reader.retrieve("r", tokens, range(2)) == 2 * PAGE_SIZE


def test_a_salt_separates_requests(three_nodes: Cluster, engine: MakeEngine) -> None:
    one = engine(three_nodes[0], model_name="salt")
    tokens = tokens_of("salt", 2)
    future, end = one.connector.store_kv_async("w", mapping_of([0, 1]), tokens, cache_salt="a")
    assert future.result() == end
    matched = one.connector.num_external_matched_tokens
    # Even for the same request name: state kept for one salt must not serve another.
    assert matched("w", tokens, cache_salt="b") == 0
    assert matched("w", tokens) == 0
    assert matched("w", tokens, extra_key="a") == 0
    assert matched("w", tokens, cache_salt="a") == end


# --- errors arrive through the future ---------------------------------------------------------


@pytest.mark.parametrize(
    ("mapping", "says"),
    [
        ([(0, slice(1, 17))], "begins with token 1"),
        ([(0, slice(0, 16)), (1, slice(32, 48))], "begins with token 32"),
        ([(0, slice(0, 8)), (1, slice(8, 24))], "begins with token 8"),
        ([(0, slice(0, 32))], "has 32 tokens"),
        ([(0, slice(48, 80))], "tokens 48 to 80 of 64"),
        ([(0, slice(0, 16, 2))], "without steps"),
        ([(0, slice(0, None))], "start, stop"),
        ([(64, slice(0, 16))], "there is no page 64"),
        ([(-1, slice(0, 16))], "there is no page -1"),
        ([(0, slice(0, 16)), (0, slice(16, 32))], "named twice"),
    ],
)
def test_invalid_mapping_is_refused_with_the_reason(
    three_nodes: Cluster, engine: MakeEngine, mapping: list[tuple[int, slice]], says: str
) -> None:
    one = engine(three_nodes[0])
    tokens = tokens_of("wrong", 4)
    for call in (one.connector.store_kv_async, one.connector.retrieve_kv_async):
        with pytest.raises(ValueError, match=says):
            future_of(call("r", mapping, tokens)).result()


def test_negative_token_fails_the_future_with_its_position(
    three_nodes: Cluster, engine: MakeEngine
) -> None:
    one = engine(three_nodes[0])
    tokens = [-1] * PAGE_SIZE
    future, end = one.connector.store_kv_async("r", mapping_of([0]), tokens)
    assert end == 0
    with pytest.raises(ValueError, match="token 0 is -1"):
        future.result()
    assert one.connector.num_external_matched_tokens("r", tokens) == 0


def test_calls_before_registration_and_after_close_fail_their_futures(three_nodes: Cluster) -> None:
    tokens = tokens_of("ends", 1)
    with Engine(three_nodes[0].socket_path) as one:

        def fail(says: str) -> None:
            future, _ = one.connector.store_kv_async("r", mapping_of([0]), tokens)
            with pytest.raises(RuntimeError, match=says):
                future.result()
            with pytest.raises(RuntimeError, match=says):
                one.connector.num_external_matched_tokens_async("r", tokens).result()
            assert one.connector.num_external_matched_tokens("r", tokens) == 0
            one.connector.finish_req("r").result()

        fail("no buffers")
        one.register()
        one.connector.close()
        fail("is closed")


def test_inaccessible_memory_is_refused_with_the_remedy(three_nodes: Cluster) -> None:
    """GPU addresses lie in ranges without access rights: reading one would crash the process."""
    untouchable = mmap.mmap(-1, 1 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=0)
    with Engine(three_nodes[0].socket_path) as one:
        args = one.kv_args
        # With prot=0 Python offers no buffer, so the address comes from the process's mappings.
        mapping = next(
            each
            for each in memory.read_mappings()
            if not each.writable and each.end - each.start == 1 << 20 and not each.path
        )
        args.kv_data_ptrs[1] = mapping.start
        with pytest.raises(ValueError, match="register buffers in host memory"):
            one.connector.register_kv_buffers(args)
    untouchable.close()


def test_calls_beyond_calls_max_fail_as_busy(make_cluster: MakeCluster, engine: MakeEngine) -> None:
    cluster = make_cluster(1)
    one = engine(cluster[0], calls_max=3, timeout_s=seconds(1.0))
    tokens = tokens_of("busy", 1)
    one.store("first", tokens, [0])  # makes the connection
    cluster[0].freeze()
    under_way = [one.connector.store_kv_async("r", mapping_of([i]), tokens)[0] for i in range(3)]
    future = one.connector.retrieve_kv_async("r", mapping_of([9]), tokens)
    with pytest.raises(ConnectorBusy):
        future.result(timeout=0)
    cluster[0].thaw()
    for each in under_way:
        each.result()
    future = one.connector.retrieve_kv_async("r", mapping_of([9]), tokens)
    future.result()


@pytest.mark.parametrize(
    ("field", "value"),
    [("page_size", 0), ("tp_rank", 1), ("model_name", ""), ("kv_cache_dtype", "")],
)
def test_invalid_metadata_is_refused_by_field(field: str, value: object) -> None:
    given: dict[str, Any] = {"model_name": "m", "page_size": 16, "kv_cache_dtype": "bfloat16"}
    with pytest.raises(ValueError, match=field):
        RemoteKVConnector(ConnectorMetadata(**{**given, field: value}))


@pytest.mark.parametrize("hold_s", [0.0, 30.0])
def test_only_a_hold_keeps_matched_pages_until_the_retrieve(
    make_cluster: MakeCluster, engine: MakeEngine, hold_s: float
) -> None:
    """Between match and retrieve, other workers set four times the capacity of the holder's
    pool."""
    cluster = make_cluster(2, pool_size="8MiB")
    writer = engine(cluster[0], page_bytes=65536)
    reader = engine(cluster[1], page_bytes=65536, hold_s=hold_s)
    tokens = tokens_of("kept", 4)
    writer.store("w", tokens, range(4))
    assert reader.connector.num_external_matched_tokens("r", tokens) == 4 * PAGE_SIZE
    for number in range(8):
        writer.store(f"others {number}", tokens_of(f"others {number}", 16), range(16))
    assert reader.retrieve("r", tokens, range(4)) == (4 * PAGE_SIZE if hold_s else 0)


def test_a_match_that_its_holds_made_shorter_is_counted_and_said(
    make_cluster: MakeCluster, engine: MakeEngine, caplog: pytest.LogCaptureFixture
) -> None:
    """A holder keeps at most a quarter of its pool: 8 of these pages."""
    cluster = make_cluster(2, pool_size="8MiB")
    writer = engine(cluster[0], page_bytes=65536)
    reader = engine(cluster[1], page_bytes=65536, hold_s=2.0).connector
    tokens = tokens_of("shorter", 16)
    assert writer.store("w", tokens, range(16)) == 16 * PAGE_SIZE
    match = reader.num_external_matched_tokens
    assert match("r", tokens) == 8 * PAGE_SIZE
    assert reader.unheld_tokens == 8 * PAGE_SIZE

    def counted() -> int:
        assert match("r", tokens) == 8 * PAGE_SIZE
        return reader.unheld_tokens // PAGE_SIZE

    assert counted() == 8, "no match within the same second looks again"
    eventually(lambda: counted() == 16)
    notes.flush()
    assert caplog.text.count("128 tokens shorter than what the cluster has") == 1


def test_absent_pages_are_not_unheld(make_cluster: MakeCluster, engine: MakeEngine) -> None:
    cluster = make_cluster(2, pool_size="8MiB")
    tokens = tokens_of("kept", 4)
    writer = engine(cluster[0], page_bytes=65536)
    assert writer.store("w", tokens, range(4)) == 4 * PAGE_SIZE
    reader = engine(cluster[1], page_bytes=65536, hold_s=2.0).connector
    more = [*tokens, *tokens_of("other", 1)]
    assert reader.num_external_matched_tokens("kept", more) == 4 * PAGE_SIZE
    assert reader.unheld_tokens == 0


# --- a daemon that dies or hangs --------------------------------------------------------------


def test_without_a_daemon_everything_is_a_miss_and_comes_back(
    make_cluster: MakeCluster, engine: MakeEngine
) -> None:
    cluster = make_cluster(1)
    one = engine(cluster[0])
    tokens = tokens_of("outage", 4)
    assert one.store("w", tokens, range(4)) == 4 * PAGE_SIZE
    cluster[0].kill()
    assert one.store("w", tokens, range(4)) == 0
    began = now_s()
    assert one.connector.num_external_matched_tokens("r", tokens) == 0
    assert one.retrieve("r", tokens, range(4)) == 0
    assert now_s() - began < seconds(1.0)
    cluster.start_again(cluster[0])
    eventually(lambda: one.store("w", tokens, range(4)) == 4 * PAGE_SIZE)
    assert one.retrieve("r", tokens, range(4)) == 4 * PAGE_SIZE


def test_retrieve_that_timed_out_writes_nothing_afterwards(
    make_cluster: MakeCluster, engine: MakeEngine
) -> None:
    cluster = make_cluster(2)
    writer, reader = engine(cluster[0]), engine(cluster[1], timeout_s=seconds(0.5))
    tokens = tokens_of("silence", 32)
    writer.store("w", tokens, range(32))
    reader.blank()
    for frozen in cluster.daemons:  # the holder, then the reader's own daemon
        frozen.freeze()
        future = reader.connector.retrieve_kv_async("r", mapping_of(range(32)), tokens)
        assert future.result() < len(tokens)
        reader.blank()
        frozen.thaw()
        eventually(lambda: writer.connector.num_external_matched_tokens("w", tokens) > 0)
        eventually(lambda: reader.connector.num_external_matched_tokens("w", tokens) > 0)
        assert reader.is_blank()


@pytest.mark.parametrize("drop_stores", [False, True], ids=["finished", "aborted"])
def test_finish_future_resolves_only_after_the_requests_stores_end(
    make_cluster: MakeCluster, engine: MakeEngine, drop_stores: bool
) -> None:
    cluster = make_cluster(1)
    one = engine(cluster[0], chunk_pages=1, timeout_s=seconds(5.0))
    tokens = tokens_of("finished", 8)
    one.store("first", tokens[:PAGE_SIZE], [0])  # makes the connection
    one.compute(tokens, range(8))
    cluster[0].freeze()
    future, end = one.connector.store_kv_async("r", mapping_of(range(8)), tokens)
    silent = one.connector.finish_req("r", drop_stores=drop_stores)
    assert not silent.done()
    cluster[0].thaw()
    silent.result()
    assert future.done()
    if drop_stores:
        # Only the chunk in flight: the others had not begun.
        assert future.result() <= PAGE_SIZE < end
    else:
        assert future.result() == end
    assert one.connector.finish_req("r").done()
    assert one.store("r", tokens, range(8)) == end  # the name can be used again
