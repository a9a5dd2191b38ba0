"""The connector as the text of RFC 7746 has it, for a scheduler that knows nothing else.

https://github.com/sgl-project/sglang/issues/7746
"""

from __future__ import annotations

import inspect
from abc import ABC
from concurrent.futures import Future
from contextlib import ExitStack

import pytest
from harness.cluster import Cluster
from harness.engine import PAGE_SIZE, Engine, tokens_of
from harness.fixtures import MakeCluster

from peercache_client.connector import RemoteKVConnector, RemoteKVConnectorBase

# The RFC's methods and their arguments, and finish_req, which schedulers need, too. Each also takes
# **kwargs.
METHODS = {
    "store_kv_async": ["req_id", "page_to_tokens_mapping", "tokens_list"],
    "retrieve_kv_async": ["req_id", "page_to_tokens_mapping", "tokens_list"],
    "num_external_matched_tokens": ["req_id", "tokens", "num_local_computed_tokens"],
    "finish_req": ["req_id"],
}
PAGES = [(slot, slice(i * PAGE_SIZE, (i + 1) * PAGE_SIZE)) for i, slot in enumerate([5, 2, 9, 4])]
TOKENS = tokens_of("rfc", 4)


@pytest.mark.parametrize("kind", [RemoteKVConnectorBase, RemoteKVConnector])
def test_methods_and_arguments_have_the_rfcs_names(kind: type) -> None:
    for name, arguments in METHODS.items():
        parameters = inspect.signature(getattr(kind, name)).parameters
        assert list(parameters)[1 : 1 + len(arguments)] == arguments
        assert parameters["kwargs"].kind is inspect.Parameter.VAR_KEYWORD
    assert issubclass(kind, RemoteKVConnectorBase)
    assert issubclass(kind, ABC)
    assert {*METHODS, "__init__", "register_kv_buffers", "close"} == (
        RemoteKVConnectorBase.__abstractmethods__
    )


def test_scheduler_that_knows_only_the_interface_ends_requests_and_the_connector(
    make_cluster: MakeCluster,
) -> None:
    with Engine(make_cluster(1)[0].socket_path, model_name="ends") as engine:
        connector: RemoteKVConnectorBase = engine.register().connector
        pages = [page for page, _ in PAGES]
        engine.compute(TOKENS, pages)
        stored, end = connector.store_kv_async("w", PAGES, TOKENS)
        silent = connector.finish_req("w", reason="stop")
        assert silent.result() is None
        assert stored.done() and stored.result() == end, "a finished request's stores complete"
        engine.blank()
        assert connector.retrieve_kv_async("w", PAGES, TOKENS).result(), "the name is free again"
        assert engine.right_pages(TOKENS, pages) == 4
        connector.close()
        assert isinstance(connector.retrieve_kv_async("r", PAGES, TOKENS).exception(), RuntimeError)
        assert connector.num_external_matched_tokens("r", TOKENS) == 0
        assert connector.finish_req("r").result() is None
        connector.close()


def test_scheduler_written_for_the_rfc_reuses_kv_of_another_node(three_nodes: Cluster) -> None:
    with ExitStack() as stack:
        engines = [
            stack.enter_context(Engine(node.socket_path, model_name="rfc"))
            for node in three_nodes.daemons[:2]
        ]
        for engine in engines:
            engine.connector.register_kv_buffers(engine.kv_args)
        writer, reader = (engine.connector for engine in engines)
        pages = [page for page, _ in PAGES]

        # Nothing is stored: no tokens match, and a retrieve of one page or of all is no success.
        assert reader.num_external_matched_tokens("miss", TOKENS, 0, priority=3) == 0
        for mapping in (PAGES, PAGES[2:]):
            future = reader.retrieve_kv_async("miss", mapping, TOKENS, priority=3)
            assert isinstance(future, Future)
            assert not future.result()

        engines[0].compute(TOKENS, pages)
        future, stored_until = writer.store_kv_async("w", PAGES[:3], TOKENS, priority=3)
        assert isinstance(future, Future)
        assert future.result()
        assert stored_until == 3 * PAGE_SIZE

        matched = reader.num_external_matched_tokens
        assert matched("r", TOKENS, 0) == 3 * PAGE_SIZE
        assert matched("r", TOKENS, PAGE_SIZE + 5) == 2 * PAGE_SIZE - 5
        assert matched("r", tokens=TOKENS, num_local_computed_tokens=3 * PAGE_SIZE) == 0
        assert matched("r", TOKENS, len(TOKENS)) == 0, "never less than none"

        # The engine has the first page already.
        engines[1].blank()
        assert reader.retrieve_kv_async("r", PAGES[1:3], TOKENS).result()
        assert engines[1].right_pages(TOKENS, pages[1:3], first=1) == 2
        # A page that is missing, or not full, is no success.
        assert not reader.retrieve_kv_async("r", PAGES, TOKENS).result()
        short = [*PAGES[:2], (9, slice(2 * PAGE_SIZE, 2 * PAGE_SIZE + 3))]
        assert not reader.retrieve_kv_async("r", short, TOKENS).result()

        # Errors come through the future.
        wrong = [(0, slice(3, 7))]
        for future in (
            writer.store_kv_async("e", wrong, TOKENS)[0],
            reader.retrieve_kv_async("e", wrong, TOKENS),
        ):
            assert isinstance(future.exception(), ValueError)
        assert matched("e", TOKENS, -1) == 0
