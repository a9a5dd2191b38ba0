"""An engine without a model, as a process of its own: real HTTP, a real client of the daemon.

    python -m harness.simulated_engine --socket PATH --pages '{"model_name": ...}' ...

It computes one prompt at a time. It gets the pages that the cluster has, takes the model's time for
the rest, and sets that. The answer comes when the first token would. `usage` tells how many tokens
were cached, in this node's pool and anywhere.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time

from aiohttp import web

from peercache_client import Client
from peercache_client.batch import key_frames
from peercache_client.connector import ConnectorMetadata, PrefixIndex
from peercache_client.connector.keys import namespace_of
from peercache_client.session import Reply
from peercache_client.wire import Flag, Op

_BATCH_PAGES = 128


class SimulatedEngine:
    def __init__(self, options: argparse.Namespace) -> None:
        metadata = ConnectorMetadata(**json.loads(options.pages))
        self._page_tokens = metadata.page_size
        self._page_bytes = options.page_bytes
        # It makes the keys that routers make.
        self._index = PrefixIndex(metadata, (options.page_bytes,), "http://unused")
        self._client = Client(
            options.socket, namespace_of(metadata), name="simulated engine", timeout_s=5
        )
        self._region = self._client.alloc(_BATCH_PAGES * options.page_bytes)
        self._offsets = [place * options.page_bytes for place in range(_BATCH_PAGES)]
        self._compute_s = 1 / options.tokens_per_s
        self._fetch_s = 1 / options.fetched_tokens_per_s
        self._turn = asyncio.Lock()

    def app(self) -> web.Application:
        app = web.Application(client_max_size=64 << 20)
        app.router.add_post("/v1/completions", self._complete)
        app.router.add_get("/v1/models", self._models)
        return app

    async def _models(self, _: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "simulated"}]})

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        document = await request.json()
        tokens: list[int] = document["prompt"]
        try:
            self._index.keys(tokens)
        except ValueError as error:
            return web.json_response({"error": str(error)}, status=400)
        async with self._turn:
            here, anywhere = await self._prefill(tokens)
        usage = {
            "prompt_tokens": len(tokens),
            "prompt_tokens_details": {"cached_tokens": anywhere, "cached_here_tokens": here},
        }
        answer = {"object": "text_completion", "choices": [{"text": "."}], "usage": usage}
        if not document.get("stream"):
            return web.json_response(answer)
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        for _ in range(int(document.get("max_tokens", 1))):
            await response.write(b"data: " + json.dumps(answer).encode() + b"\n\n")
            await asyncio.sleep(document.get("token_s", 0.0))
        await response.write(b"data: [DONE]\n\n")
        return response

    async def _prefill(self, tokens: list[int]) -> tuple[int, int]:
        """Tokens found in this node's pool, and anywhere."""
        began = time.monotonic()
        keys = self._index.keys(tokens)
        here, anywhere = await asyncio.to_thread(self._get, keys)
        rest = len(tokens) - anywhere * self._page_tokens
        fetched = max(0, anywhere - here) * self._page_tokens
        # What the daemons took is part of the time of a fetch.
        left_s = rest * self._compute_s + fetched * self._fetch_s - (time.monotonic() - began)
        await asyncio.sleep(max(0.0, left_s))
        await asyncio.to_thread(self._set, keys, anywhere)
        return here * self._page_tokens, anywhere * self._page_tokens

    def _get(self, keys: list[str]) -> tuple[int, int]:
        here, hits = self._in_own_pool(keys), 0
        present = self._client.batch_exists(keys, page_tokens=self._page_tokens)
        for begin in range(0, present, _BATCH_PAGES):
            part = keys[begin : min(begin + _BATCH_PAGES, present)]
            offsets = self._offsets[: len(part)]
            got = self._client.batch_get(part, self._region, offsets, self._page_bytes)
            came = next((i for i, status in enumerate(got) if not status), len(part))
            hits += came
            if came < len(part):
                break
        return min(here, hits), hits

    def _in_own_pool(self, keys: list[str]) -> int:
        found = 0
        for frame in key_frames(keys, None):
            session, flags = self._client._session(), frame.flags | Flag.here
            end = time.monotonic() + 1
            reply = session.ask(Op.exists, flags, frame.keys, end, frame.body)
            if not isinstance(reply, Reply):
                break
            found += reply.value
            if reply.value < frame.keys:
                break
        return found

    def _set(self, keys: list[str], known: int) -> None:
        for begin in range(known, len(keys), _BATCH_PAGES):
            part = keys[begin : begin + _BATCH_PAGES]
            parent = keys[begin - 1] if begin else None
            offsets = self._offsets[: len(part)]
            self._client.batch_set(part, self._region, offsets, self._page_bytes, parent=parent)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--socket", required=True)
    parser.add_argument("--pages", required=True, help="JSON of a ConnectorMetadata")
    parser.add_argument("--page-bytes", type=int, default=4096)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--tokens-per-s", type=float, default=1e6)
    parser.add_argument("--fetched-tokens-per-s", type=float, default=1e7)
    options = parser.parse_args()

    async def app() -> web.Application:
        return SimulatedEngine(options).app()

    web.run_app(app(), host=options.host, port=options.port, access_log=None, print=lambda *_: None)


if __name__ == "__main__":
    main()
