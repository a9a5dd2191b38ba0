"""The connector's calls against a stand-in daemon: which calls are refused, and how calls end."""

import asyncio
import logging
import mmap
import os
import signal
from array import array
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from threading import Thread
from typing import Any

import pytest
from harness import ipc_stand_in as ipc
from harness.clock import seconds
from harness.engine import PAGE_SIZE, Engine, future_of, mapping_of, tokens_of
from harness.ipc_stand_in import IpcStandIn

from peercache_client import memory, notes
from peercache_client.connector import ConnectorBusy, ConnectorMetadata, Moved

MakeEngine = Callable[..., Engine]


@pytest.fixture
def engine(daemon: IpcStandIn) -> Iterator[MakeEngine]:
    """`engine(chunk_pages=1)` makes a registered engine, which is closed after the test."""
    with ExitStack() as stack:

        def make(**options: Any) -> Engine:
            options = {"timeout_s": seconds(20), **options}
            return stack.enter_context(Engine(daemon.path, **options)).register()

        yield make
        daemon.hang_on = set()
        daemon.go_on.set()


def hang(daemon: IpcStandIn, op: int) -> None:
    daemon.hanging.clear()
    daemon.go_on.clear()
    daemon.hang_on = {op}


def go_on(daemon: IpcStandIn) -> None:
    daemon.hang_on = set()
    daemon.go_on.set()


def ended(future: Future[Any]) -> Any:
    return future.result(timeout=seconds(20))


def hang_in_a_store(daemon: IpcStandIn, one: Engine) -> tuple[Future[Moved], list[int]]:
    """Starts to store 64 pages for request "r". The first chunk is in flight."""
    tokens = tokens_of("store", 64)
    one.compute(tokens, range(64))
    hang(daemon, ipc.SET)
    future, end = one.connector.store_kv_async("r", mapping_of(range(64)), tokens)
    assert end == 64 * PAGE_SIZE
    assert daemon.hanging.wait(seconds(20))
    return future, tokens


# --- the end of a request ---------------------------------------------------------------------


def test_stores_of_a_finished_request_are_completed(daemon: IpcStandIn, engine: MakeEngine) -> None:
    one = engine(chunk_pages=1)
    future, tokens = hang_in_a_store(daemon, one)
    done = one.connector.finish_req("r")
    assert not done.done()
    go_on(daemon)
    ended(done)
    assert future.result(timeout=0) == len(tokens)
    assert one.connector.num_external_matched_tokens("other", tokens) == len(tokens)


def test_an_aborted_request_can_drop_its_stores(daemon: IpcStandIn, engine: MakeEngine) -> None:
    one = engine(chunk_pages=1)
    future, tokens = hang_in_a_store(daemon, one)
    done = one.connector.finish_req("r", drop_stores=True)
    assert not done.done()
    go_on(daemon)
    ended(done)
    assert future.result(timeout=0) == PAGE_SIZE  # the chunk in flight
    assert one.connector.num_external_matched_tokens("other", tokens) == PAGE_SIZE


def test_stores_can_be_dropped_after_the_request_has_finished(
    daemon: IpcStandIn, engine: MakeEngine
) -> None:
    one = engine(chunk_pages=1)
    future, _ = hang_in_a_store(daemon, one)
    done = [one.connector.finish_req("r"), one.connector.finish_req("r", drop_stores=True)]
    assert not any(each.done() for each in done)
    go_on(daemon)
    for each in done:
        ended(each)
    assert future.result(timeout=0) == PAGE_SIZE


def test_finished_requests_name_can_be_reused_while_its_stores_run(
    daemon: IpcStandIn, engine: MakeEngine
) -> None:
    one = engine(chunk_pages=1)
    future, tokens = hang_in_a_store(daemon, one)
    done = one.connector.finish_req("r")
    again, end = one.connector.store_kv_async("r", mapping_of(range(64)), tokens)
    go_on(daemon)
    ended(done)
    assert future.result(timeout=0) == ended(again) == end
    ended(one.connector.finish_req("r"))
    assert len(one.connector._requests) == 0  # it keeps no state of the request


def test_retrieves_of_a_finished_request_stop(daemon: IpcStandIn, engine: MakeEngine) -> None:
    one = engine(chunk_pages=1)
    tokens = tokens_of("retrieve", 8)
    one.store("w", tokens, range(8))
    hang(daemon, ipc.GET)
    future = one.connector.retrieve_kv_async("r", mapping_of(range(8)), tokens)
    assert daemon.hanging.wait(seconds(20))
    done = one.connector.finish_req("r")
    assert not done.done()
    go_on(daemon)
    ended(done)
    assert future.result(timeout=0) == PAGE_SIZE
    assert not future.result(), "it did not get all"


def test_a_finished_request_holds_no_pages(daemon: IpcStandIn, engine: MakeEngine) -> None:
    one = engine(threads=1)
    tokens = tokens_of("match", 2)
    one.store("w", tokens, range(2))
    hang(daemon, ipc.GET)
    one.connector.retrieve_kv_async("first", mapping_of(range(2)), tokens)
    assert daemon.hanging.wait(seconds(20))
    matched = one.connector.num_external_matched_tokens_async("r", tokens)
    one.connector.finish_req("r")
    go_on(daemon)
    assert ended(matched) == 0
    assert daemon.asked(ipc.EXISTS) == []


def test_close_stops_the_stores_of_finished_requests(
    daemon: IpcStandIn, engine: MakeEngine
) -> None:
    one = engine(chunk_pages=1)
    future, tokens = hang_in_a_store(daemon, one)
    one.connector.finish_req("r")
    closing = Thread(target=one.connector.close)
    closing.start()
    closing.join(0.1)  # it waits for the chunk in flight
    assert closing.is_alive()
    go_on(daemon)
    closing.join(seconds(20))
    assert ended(future) < len(tokens)


def test_the_end_of_a_request_cannot_be_cancelled(daemon: IpcStandIn, engine: MakeEngine) -> None:
    """A cancelled waiter, as after an asyncio timeout, must not hide the request's end from
    others."""
    one = engine(chunk_pages=1)
    hang_in_a_store(daemon, one)
    first, second = one.connector.finish_req("r"), one.connector.finish_req("r")

    async def impatient() -> None:
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.wrap_future(first), 0.01)

    asyncio.run(impatient())
    go_on(daemon)
    ended(second)
    ended(first)


# --- invalid calls ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "value"),
    [(-1, "-1"), (2**63, str(2**63)), (1.0, "1.0"), ("7", "'7'"), (None, "None")],
    ids=str,
)
def test_a_wrong_token_is_named_with_its_place(
    engine: MakeEngine, caplog: pytest.LogCaptureFixture, wrong: Any, value: str
) -> None:
    one = engine()
    tokens: list[Any] = tokens_of("wrong", 4)
    tokens[37] = wrong
    says = f"token 37 is {value}: a whole number from 0 to 2"
    for call in (one.connector.store_kv_async, one.connector.retrieve_kv_async):
        with pytest.raises(ValueError, match=says):
            future_of(call("r", mapping_of(range(4)), tokens)).result(timeout=0)
        # The wrong token does not affect the page before it.
        ended(future_of(call("r", mapping_of(range(2)), tokens)))
    with pytest.raises(ValueError, match=says):
        one.connector.num_external_matched_tokens_async("r", tokens).result(timeout=0)
    with caplog.at_level(logging.WARNING, "peercache_client"):
        assert one.connector.num_external_matched_tokens("r", tokens) == 0
    notes.flush()
    assert says in caplog.text


def test_tokens_behind_the_last_whole_page_are_not_looked_at(engine: MakeEngine) -> None:
    one = engine()
    tokens = tokens_of("tail", 2, more=1)
    one.store("w", tokens[:-1], range(2))
    tokens[-1] = -1
    assert one.connector.num_external_matched_tokens("r", tokens) == 2 * PAGE_SIZE
    assert ended(one.connector.num_external_matched_tokens_async("r", tokens)) == 2 * PAGE_SIZE


@pytest.mark.parametrize(
    "tokens",
    [[2**32] * 16, [2**63 - 1] * 16, array("I", range(16))],
    ids=["above 32 bits", "63 bits", "array"],
)
def test_wide_tokens_and_arrays_are_tokens(engine: MakeEngine, tokens: Any) -> None:
    one = engine()
    future, end = one.connector.store_kv_async("w", mapping_of([0]), tokens)
    assert ended(future) == end == PAGE_SIZE
    assert one.connector.num_external_matched_tokens("r", list(tokens)) == PAGE_SIZE


def test_bytes_are_small_tokens(engine: MakeEngine) -> None:
    one = engine()
    one.store("w", list(range(32)), range(2))
    assert one.connector.num_external_matched_tokens("r", bytes(range(32))) == 2 * PAGE_SIZE


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"tokens_list": None}, "tokens_list is None"),
        ({"tokens_list": {1, 2}}, "tokens_list is {1, 2}"),
        ({"tokens_list": {1: 2}}, "tokens_list is {1: 2}"),
        ({"tokens_list": "some tokens that are text"}, "token 0 is 's'"),
        ({"page_to_tokens_mapping": None}, "page_to_tokens_mapping is None"),
        ({"page_to_tokens_mapping": [7]}, "entry 0 of page_to_tokens_mapping is 7"),
        ({"page_to_tokens_mapping": [(0, (0, 16))]}, "entry 0 .*slice"),
        ({"page_to_tokens_mapping": [(0.5, slice(0, 16))]}, "entry 0 .*page number"),
        ({"page_to_tokens_mapping": [(0, slice(0.0, 16.0))]}, "entry 0 .*slice"),
        ({"page_to_tokens_mapping": [(0, slice(0, 16)), (1, slice(16, None))]}, "entry 1"),
        ({"extra_key": 7}, "extra_key is 7"),
        ({"cache_salt": "\udc80"}, r"cache_salt is '\\udc80'"),
        ({"req_id": []}, "unhashable"),
    ],
    ids=str,
)
def test_invalid_arguments_fail_at_once_and_free_their_call_slot(
    engine: MakeEngine, given: dict[str, Any], says: str
) -> None:
    one = engine(calls_max=1)
    right: dict[str, Any] = {
        "req_id": "r",
        "page_to_tokens_mapping": mapping_of([0]),
        "tokens_list": tokens_of("meant", 1),
    }
    for call in (one.connector.store_kv_async, one.connector.retrieve_kv_async):
        for _ in range(2):  # a refused call frees its slot
            future = future_of(call(**{**right, **given}))
            with pytest.raises((ValueError, TypeError), match=says) as caught:
                future.result(timeout=0)
            assert caught.type is (TypeError if "req_id" in given else ValueError)
    if "page_to_tokens_mapping" not in given:
        asked = {**right, **given}
        del asked["page_to_tokens_mapping"]
        asked["tokens"] = asked.pop("tokens_list")
        assert one.connector.num_external_matched_tokens(**asked) == 0
        with pytest.raises((ValueError, TypeError), match=says):
            one.connector.num_external_matched_tokens_async(**asked).result(timeout=0)
    future, end = one.connector.store_kv_async(**right)
    assert ended(future) == end == PAGE_SIZE


def test_a_call_too_many_is_refused_with_the_end_index_0(
    daemon: IpcStandIn, engine: MakeEngine
) -> None:
    one = engine(calls_max=1)
    _, tokens = hang_in_a_store(daemon, one)
    future, end = one.connector.store_kv_async("r", mapping_of([0]), tokens)
    with pytest.raises(ConnectorBusy, match="1 calls"):
        future.result(timeout=0)
    assert end == 0
    with pytest.raises(ConnectorBusy, match="1 calls"):
        one.connector.retrieve_kv_async("r", mapping_of([0]), tokens).result(timeout=0)


@pytest.mark.parametrize(
    "name",
    ["model_name", "kv_cache_dtype", "layout", "model_revision", "namespace", "tenant"],
)
@pytest.mark.parametrize("value", ["a\nb", "a\x1b", "\udc80", None], ids=repr)
def test_metadata_is_printable_text(name: str, value: Any) -> None:
    given: dict[str, Any] = {"model_name": "m", "page_size": 16, "kv_cache_dtype": "bfloat16"}
    with pytest.raises(ValueError, match=f"{name} is .*printable text"):
        ConnectorMetadata(**{**given, name: value})


# --- memory -----------------------------------------------------------------------------------


def test_inaccessible_buffer_is_refused_with_its_address_and_the_remedy(daemon: IpcStandIn) -> None:
    """GPU addresses lie in ranges without access rights: reading one would crash the process."""
    size_bytes = 3 << 20  # unique among the mappings
    untouchable = mmap.mmap(-1, size_bytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=0)
    # With prot=0 Python offers no buffer, so the address comes from the process's mappings.
    (address,) = (
        each.start
        for each in memory.read_mappings()
        if not each.writable and each.end - each.start == size_bytes and not each.path
    )
    with Engine(daemon.path) as one:
        args = one.kv_args
        args.kv_data_ptrs[1] = address
        with pytest.raises(ValueError, match="host memory only") as caught:
            one.connector.register_kv_buffers(args)
        says = str(caught.value)
        assert f"buffer 1: this process cannot read and write all {one.buffer_bytes} bytes" in says
        assert f"at {address:#x}" in says
        assert "register buffers in host memory, and copy pages between the two" in says
    untouchable.close()


def test_private_memory_is_named_without_advice_that_no_connector_can_follow(
    engine: MakeEngine, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "peercache_client"):
        engine(shared=False)
    notes.flush()
    assert "is private to this process)" in caplog.text
    assert "Client" not in caplog.text
    assert "batch_" not in caplog.text


def test_a_forked_child_has_threads_of_its_own(engine: MakeEngine, daemon: IpcStandIn) -> None:
    one = engine(chunk_pages=1)
    tokens = tokens_of("forked", 4)
    one.compute(tokens, range(4))
    ended(one.connector.store_kv_async("r", mapping_of(range(4)), tokens)[0])
    hang(daemon, ipc.SET)
    parents, _ = one.connector.store_kv_async("s", mapping_of(range(4)), tokens)
    assert daemon.hanging.wait(seconds(20))
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            signal.alarm(int(seconds(40)) + 1)
            moved = ended(one.connector.retrieve_kv_async("r", mapping_of(range(4)), tokens))
            one.connector.close()
            code = 0 if moved == 4 * PAGE_SIZE else 2
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0
    go_on(daemon)
    assert ended(parents)


def test_close_in_a_callback_returns_and_ends_the_other_calls(
    engine: MakeEngine, daemon: IpcStandIn
) -> None:
    one = engine(chunk_pages=1, threads=1)
    tokens = tokens_of("closed", 4)
    hang(daemon, ipc.GET)
    first = one.connector.retrieve_kv_async("r", mapping_of(range(4)), tokens)
    second = one.connector.retrieve_kv_async("s", mapping_of(range(4)), tokens)
    closed: Future[None] = Future()

    def close(_: Future[Moved]) -> None:
        try:
            one.connector.close()
            closed.set_result(None)
        except Exception as error:
            closed.set_exception(error)

    first.add_done_callback(close)
    go_on(daemon)
    ended(closed)
    ended(second)
