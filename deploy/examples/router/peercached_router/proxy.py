"""The HTTP server: passes OpenAI-style requests on, and streams the answers back."""

from __future__ import annotations

import itertools
import json
import logging
import os
import time
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
from aiohttp import web

from peercached_router.choice import Load, ranked, work
from peercached_router.config import Config
from peercached_router.daemons import Daemons

_log = logging.getLogger(__name__)

_BODY_BYTES_MAX: Final = 64 << 20
_CONNECT_S: Final = 2.0
_DOWN_S: Final = 5.0  # an engine that could not be reached comes last for so long
_TOKENIZE_S: Final = 0.2
_HOP: Final = frozenset({"connection", "content-length", "host", "keep-alive", "transfer-encoding"})


@dataclass
class _Plan:
    order: list[str]
    tokens: int = 0
    prefixes: dict[str, int] | None = None
    keys: list[str] | None = None


class EngineFailedError(Exception):
    """An engine could not be reached, or ended before it answered."""


def _reason(error: BaseException) -> str:
    """For people."""
    if isinstance(error, OSError) and (error.errno or 0) > 0:
        return os.strerror(error.errno or 0)
    return str(error) or type(error).__name__


class Router:
    def __init__(self, config: Config) -> None:
        self._config = config
        self._loads = {node: Load() for node in config.nodes}
        self._down_until = dict.fromkeys(config.nodes, 0.0)
        self._turn = itertools.count(1)
        self._last_turn = dict.fromkeys(config.nodes, 0)
        self._counts: Counter[str] = Counter()
        self._session: aiohttp.ClientSession
        self._daemons: Daemons

    def app(self) -> web.Application:
        app = web.Application(client_max_size=_BODY_BYTES_MAX)
        for path in ("/v1/completions", "/v1/chat/completions"):
            app.router.add_post(path, self._complete)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/status", self._status)
        app.cleanup_ctx.append(self._running)
        return app

    async def _running(self, _: web.Application) -> Any:
        connector = aiohttp.TCPConnector(limit=0)
        # Engines answer when they answer; only connecting is bounded.
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S)
        async with aiohttp.ClientSession(
            connector=connector, timeout=timeout, auto_decompress=False
        ) as session:
            self._session = session
            self._daemons = Daemons(self._config, session)
            yield
            await self._daemons.close()

    # --- requests

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        try:
            document = json.loads(body)
        except (ValueError, RecursionError) as error:
            return web.json_response({"error": f"the body is not JSON: {error}"}, status=400)
        plan = await self._plan(document)
        why = "there are no nodes"
        for node in plan.order:
            try:
                return await self._pass_on(request, body, node, plan)
            except EngineFailedError as error:
                why = str(error)
                self._counts["engine_failed"] += 1
                self._down_until[node] = time.monotonic() + _DOWN_S
        return web.json_response({"error": f"no engine could be reached: {why}"}, status=502)

    async def _plan(self, document: Any) -> _Plan:
        if self._config.strategy == "round-robin":
            return _Plan(self._in_turn())
        tokens = await self._tokens_of(document, self._in_turn()[0])
        keys = self._keys_of(tokens)
        prefixes = await self._daemons.prefixes(keys) if keys else {}
        # After the questions: requests that waited with this one have had their turns.
        order = self._in_turn()
        if prefixes is None:  # round robin
            self._counts["by_turn"] += 1
            return _Plan(order)
        self._counts["by_prefix" if prefixes else "by_load"] += 1
        now = time.monotonic()
        order = ranked(order, len(tokens), prefixes, self._loads)
        order.sort(key=lambda node: now < self._down_until[node])
        return _Plan(order, len(tokens), prefixes, keys)

    def _in_turn(self) -> list[str]:
        """The node that had no request for longest first, those that are down last."""
        now = time.monotonic()
        return sorted(
            self._config.nodes,
            key=lambda node: (now < self._down_until[node], self._last_turn[node]),
        )

    def _keys_of(self, tokens: list[int]) -> list[str]:
        try:
            return self._daemons.keys(tokens)
        except ValueError:  # the engine refuses such tokens with its own words
            return []

    async def _tokens_of(self, document: Any, node: str) -> list[int]:
        """Empty: not known, and the request goes by load."""
        prompt = document.get("prompt") if isinstance(document, dict) else None
        if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], list):
            prompt = prompt[0]
        if isinstance(prompt, list) and all(type(token) is int for token in prompt):
            return prompt
        if not self._config.tokenize or not isinstance(document, dict):
            return []
        wanted = {
            name: document[name] for name in ("model", "prompt", "messages") if name in document
        }
        try:
            async with self._session.post(
                f"{self._config.nodes[node].engine}/tokenize",
                json=wanted,
                timeout=aiohttp.ClientTimeout(total=_TOKENIZE_S),
            ) as answer:
                answer.raise_for_status()
                tokens = (await answer.json())["tokens"]
                return tokens if isinstance(tokens, list) else []
        except (aiohttp.ClientError, TimeoutError, ValueError, KeyError, TypeError):
            self._counts["not_tokenized"] += 1
            return []

    async def _pass_on(
        self, request: web.Request, body: bytes, node: str, plan: _Plan
    ) -> web.StreamResponse:
        """EngineFailedError: nothing has been answered, so another engine can do it."""
        load, cost = self._loads[node], work(plan.tokens, plan.prefixes or {}, node)
        load.requests += 1
        load.tokens += cost
        self._last_turn[node] = next(self._turn)
        self._hint(node, plan)
        try:
            async with AsyncExitStack() as stack:
                try:
                    answer = await stack.enter_async_context(self._ask(request, body, node))
                    first = await answer.content.readany()
                except (aiohttp.ClientError, OSError) as error:
                    raise EngineFailedError(f"{node}: {_reason(error)}") from error
                load.tokens -= cost
                cost = 0.0
                response = web.StreamResponse(status=answer.status)
                for name, value in answer.headers.items():
                    if name.lower() not in _HOP:
                        response.headers.add(name, value)
                response.headers["x-peercached-node"] = node
                await response.prepare(request)
                await response.write(first)
                await self._stream(request, answer, response)
                self._counts[f"to_{node}"] += 1
                return response
        finally:
            load.requests -= 1
            load.tokens -= cost

    def _ask(self, request: web.Request, body: bytes, node: str) -> Any:
        return self._session.post(
            f"{self._config.nodes[node].engine}{request.path_qs}",
            data=body,
            headers={k: v for k, v in request.headers.items() if k.lower() not in _HOP},
        )

    async def _stream(
        self, request: web.Request, answer: aiohttp.ClientResponse, response: web.StreamResponse
    ) -> None:
        while True:
            try:
                piece = await answer.content.readany()
            except (aiohttp.ClientError, OSError):
                self._counts["engine_failed"] += 1
                if request.transport is not None:
                    request.transport.close()  # a broken stream, as from the engine itself
                return
            if not piece:
                await response.write_eof()
                return
            await response.write(piece)

    def _hint(self, node: str, plan: _Plan) -> None:
        """The pages that another node has and this one has not."""
        if not plan.prefixes or not plan.keys:
            return
        size = self._config.metadata.page_size
        here, longest = plan.prefixes.get(node, 0) // size, max(plan.prefixes.values()) // size
        if here < longest:
            self._daemons.fetch(node, plan.keys[here:longest])

    # --- the rest

    async def _models(self, request: web.Request) -> web.StreamResponse:
        for node in self._in_turn():
            try:
                async with self._session.get(f"{self._config.nodes[node].engine}/v1/models") as got:
                    return web.Response(
                        body=await got.read(), status=got.status, content_type=got.content_type
                    )
            except (aiohttp.ClientError, OSError):
                continue
        return web.json_response({"error": "no engine could be reached"}, status=502)

    async def _status(self, _: web.Request) -> web.StreamResponse:
        now = time.monotonic()
        nodes = {
            node: {
                "requests": load.requests,
                "tokens": round(load.tokens),
                "down": now < self._down_until[node],
            }
            for node, load in self._loads.items()
        }
        return web.json_response(
            {"nodes": nodes, "counts": self._counts, "daemons": self._daemons.document()}
        )
