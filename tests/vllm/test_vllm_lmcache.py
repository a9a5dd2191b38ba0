"""Whole vLLM engines with LMCache's connector and servers, and our L2 adapter in these servers.

Slow, and it needs the environments of both: `make test-vllm-slow`.
"""

import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from harness.lmcache_server import LmcacheServer
from harness.waiting import eventually
from serving.beside_lmcache import LMCACHE_PYTHON, add_lmcache, connector_config
from serving.engine import Engine
from serving.prompts import NEW_TOKENS, prompt_of
from serving.tiny_model import Architecture, write_model

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(
        not LMCACHE_PYTHON.exists(), reason="needs .venv-lmcache: run `make test-vllm-slow`"
    ),
]

ARCHITECTURE = Architecture()
CHUNK_TOKENS = 64


class Engines(NamedTuple):
    plain: Engine  # without any connector
    a: Engine
    b: Engine
    servers: list[LmcacheServer]  # of a and b, each with a daemon of its own


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory, nodes: Any) -> Iterator[Engines]:
    folder = tmp_path_factory.mktemp("lmcache")
    write_model(folder / "model", ARCHITECTURE)
    with ExitStack() as stack:

        def serve(socket_path: Path) -> LmcacheServer:
            log = folder / f"{uuid.uuid4().hex}.log"
            return LmcacheServer(LMCACHE_PYTHON, socket_path, log, stack, chunk_tokens=CHUNK_TOKENS)

        def start(name: str, config: Any, **options: Any) -> Engine:
            return stack.enter_context(
                Engine(name, folder / "model", config, max_model_len=1024, **options)
            )

        servers = [serve(nodes[place].socket_path) for place in (0, 1)]
        for server in servers:
            eventually(partial(answers, server), 120, "LMCache's server")
        plain = start("plain", None)
        a, b = (
            start(name, connector_config(server.port), prepare=add_lmcache)
            for name, server in zip("ab", servers, strict=True)
        )
        for engine in (plain, a, b):
            engine.wait_ready()
        yield Engines(plain, a, b, servers)


def answers(server: LmcacheServer) -> bool:
    assert server.process.poll() is None, server.log.read_text()[-3000:]
    try:
        return bool(server.http("/healthcheck")["status"] == "healthy")
    except OSError:
        return False


def stored(server: LmcacheServer) -> int:
    """Pages that the daemon of this server took."""
    return int(server.adapter()["pages"].get("store", {}).get("ok", 0))


def test_the_second_engine_gets_what_the_first_computed(engines: Engines) -> None:
    chunks = 500 // CHUNK_TOKENS
    prompt = prompt_of("shared", 500)
    right = engines.plain.answer(prompt, NEW_TOKENS)
    first = engines.a.answer(prompt, NEW_TOKENS)
    assert first.same_as(right)
    assert first.cached_tokens == 0
    of_a, of_b = engines.servers
    eventually(lambda: stored(of_a) == chunks, 60, "the stores of the first server")
    second = engines.b.answer(prompt, NEW_TOKENS)
    assert second.same_as(right)
    assert second.cached_tokens == chunks * CHUNK_TOKENS
    assert of_b.adapter()["pages"]["load"] == {"ok": chunks}
    assert of_b.adapter()["in_place"]


def test_a_longer_prompt_computes_only_what_is_new(engines: Engines) -> None:
    """From a prompt of the second engine, for the first one."""
    head, tail = prompt_of("head", 320), prompt_of("tail", 150)
    before = stored(engines.servers[1])
    engines.b.answer(head, 1)
    all_stored = before + 320 // CHUNK_TOKENS
    eventually(lambda: stored(engines.servers[1]) == all_stored, 60, "the second server's stores")
    answer = engines.a.answer(head + tail, NEW_TOKENS)
    assert answer.cached_tokens == 320
    assert answer.same_as(engines.plain.answer(head + tail, NEW_TOKENS))
