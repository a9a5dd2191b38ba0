"""LMCache's multi-process server, as a process of its own, with our adapter in its arguments.

The worker's side is LMCache's own client for engines without a GPU.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
import torch
from harness.clock import seconds
from harness.lmcache_server import LmcacheServer
from harness.waiting import eventually
from lmcache.v1.distributed.api import MemoryLayoutDesc
from lmcache.v1.multiprocess.custom_types import (
    IPCCacheServerKey,
    RegisterEngineDrivenContextPayload,
)
from lmcache.v1.multiprocess.transfer_context import (
    EngineDrivenContextMetadata,
    create_engine_driven_context,
)
from lmcache.v1.multiprocess.transport.factory import RequestClientFactory

MODEL = "test/model"
CHUNK_TOKENS = 16
SHAPE = (2, 4, CHUNK_TOKENS, 64)  # K and V, layers, tokens, hidden size
_INSTANCE = 7


class Server(LmcacheServer):
    """One server, and one worker of it."""

    def __init__(self, socket_path: Path, log: Path, stack: ExitStack) -> None:
        super().__init__(Path(sys.executable), socket_path, log, stack, chunk_tokens=CHUNK_TOKENS)
        self._client = RequestClientFactory.create(f"tcp://127.0.0.1:{self.port}")
        stack.callback(self._client.close)
        registered = self._client.register_kv_cache_engine_driven_context(
            RegisterEngineDrivenContextPayload(
                _INSTANCE, MODEL, 1, CHUNK_TOKENS, SHAPE[1], SHAPE[3], "bfloat16", False, None
            )
        ).result(timeout=seconds(60))
        layout = MemoryLayoutDesc([torch.Size(SHAPE)], [torch.bfloat16])
        self._context = create_engine_driven_context(
            EngineDrivenContextMetadata(layout, CHUNK_TOKENS, False),
            self._client,
            seconds(20),
            registered.shm_name,
            registered.pool_size,
        )
        stack.callback(self._context.close)

    @staticmethod
    def _key(tokens: list[int], request: str, worker: int | None, end: int) -> Any:
        return IPCCacheServerKey.from_token_ids(MODEL, 1, worker, tokens, 0, end, request)

    def store(self, tokens: list[int]) -> None:
        """As a worker that has computed this prompt. LMCache stores it in L2 afterwards."""
        key = self._key(tokens, uuid.uuid4().hex, 0, len(tokens))
        prepared = self._context.prepare_store(key, _INSTANCE)
        assert prepared is not None, "the server's L1 is not shared with the worker"
        places, numbers = prepared
        chunks = chunks_of(tokens)
        for place, number in zip(places, numbers, strict=True):
            place.copy_(chunks[number].view(place.shape))
        assert self._context.commit_store(key, _INSTANCE, places)

    def retrieve(self, tokens: list[int]) -> int:
        """How many chunks of this prompt the server has. Compares their values."""
        request = uuid.uuid4().hex
        self._client.lookup(self._key(tokens, request, None, len(tokens)), 1).result(
            timeout=seconds(20)
        )
        found = self._client.wait_prefetch_status(request, seconds(20)).result(timeout=seconds(30))
        assert found is not None, "LMCache waits for ever"
        if found:
            key = self._key(tokens, request, 0, found * CHUNK_TOKENS)
            retrieve = self._context.prepare_retrieve
            more = [found] if "expected_count" in signature(retrieve).parameters else []  # 0.5.7
            loaded = retrieve(key, _INSTANCE, *more)
            assert loaded is not None
            for chunk, expected in zip(loaded, chunks_of(tokens), strict=False):
                assert torch.equal(chunk.reshape(SHAPE), expected), "wrong bytes were loaded"
            assert self._context.commit_retrieve(key, _INSTANCE)
        self._client.end_session(request).result(timeout=seconds(20))
        return int(found)


def prompt(number: int, chunks: int) -> list[int]:
    return [1000 * number + place for place in range(chunks * CHUNK_TOKENS)]


def chunks_of(tokens: list[int]) -> list[torch.Tensor]:
    """The values that belong to each chunk of a prompt."""
    return [
        torch.randn(SHAPE, generator=torch.Generator().manual_seed(tokens[begin])).bfloat16()
        for begin in range(0, len(tokens), CHUNK_TOKENS)
    ]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[Path], Server]]:
    with ExitStack() as stack:

        def make(socket_path: Path) -> Server:
            return Server(socket_path, tmp_path / f"{uuid.uuid4().hex}.log", stack)

        yield make


def test_a_prompt_of_one_server_comes_from_another(
    start: Callable[[Path], Server], nodes: Any
) -> None:
    first, second = (start(nodes[place].socket_path) for place in (0, 1))
    tokens = prompt(1, 6)
    first.store(tokens)
    eventually(lambda: second.retrieve(tokens) == 6, 30, "the chunks of the other server")
    assert second.retrieve(prompt(2, 3)) == 0
    for server in (first, second):
        assert "Traceback" not in server.log.read_text()


def test_the_http_frontend_tells_what_the_adapter_did(
    start: Callable[[Path], Server], one_daemon: Any
) -> None:
    one_daemon.start()
    server = start(one_daemon[0].socket_path)
    assert server.adapter()["in_place"] is None
    tokens = prompt(1, 6)
    server.store(tokens)
    eventually(lambda: server.adapter()["pages"] == {"store": {"ok": 6}}, 20, "six stores")
    assert server.http("/cache/clear", "POST")["status"] == "ok"
    assert server.retrieve(tokens) == 6, "from the daemon: L1 is empty"
    status = server.adapter()
    assert status["pages"] == {"load": {"ok": 6}, "store": {"ok": 6}}
    assert (status["is_healthy"], status["daemon_error"], status["in_place"]) == (True, "", True)
    one_daemon[0].kill()
    assert server.retrieve(prompt(2, 2)) == 0
    status = server.adapter()
    assert (status["is_healthy"], status["daemon_error"]) == (True, "Connection refused")
    assert server.http("/status")["is_healthy"]
    assert server.http("/healthcheck") == {"status": "healthy"}


def test_a_server_goes_on_without_its_daemon(
    start: Callable[[Path], Server], one_daemon: Any
) -> None:
    one_daemon.start()
    server = start(one_daemon[0].socket_path)
    server.store(prompt(1, 4))
    one_daemon[0].kill()
    assert server.retrieve(prompt(2, 4)) == 0
    server.store(prompt(3, 4))
    assert server.retrieve(prompt(3, 4)) == 4, "from its own L1"
    one_daemon.start()
    assert server.retrieve(prompt(4, 4)) == 0
    assert server.process.poll() is None
    assert "Traceback" not in server.log.read_text()
