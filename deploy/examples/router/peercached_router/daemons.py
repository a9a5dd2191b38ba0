"""Questions and hints to peercached. A daemon that does not answer costs a request one timeout, and
is then left alone for a while."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import aiohttp

from peercache_client.connector import PrefixIndex
from peercache_client.connector.keys import namespace_of
from peercached_router.config import Config

_log = logging.getLogger(__name__)

_QUIET_S: Final = 1.0
_NO_HINTS_S: Final = 60.0  # after a daemon that takes none, or not from us
_HINTS_MAX: Final = 32  # under way at a time
_HINT_S: Final = 2.0


class Daemons:
    """For one event loop."""

    def __init__(self, config: Config, session: aiohttp.ClientSession) -> None:
        self._config = config
        self._session = session
        first = next(iter(config.nodes.values()))
        self._index = PrefixIndex(config.metadata, config.page_bytes, first.daemon)
        self._namespace = namespace_of(config.metadata)
        self._page_tokens = config.metadata.page_size
        self._turns = itertools.cycle(config.nodes)
        self._quiet_until = dict.fromkeys(config.nodes, 0.0)
        self._no_hints_until = dict.fromkeys(config.nodes, 0.0)
        self._numbers = itertools.count(1)
        self._hints: set[asyncio.Task[None]] = set()
        self.counts: Counter[str] = Counter()

    def keys(self, tokens: Sequence[int]) -> list[str]:
        """Of the prompt's full pages. ValueError for an invalid token."""
        return self._index.keys(tokens)

    async def prefixes(self, keys: list[str]) -> dict[str, int] | None:
        """Tokens of the prompt's beginning, by node. None: no daemon has answered in time."""
        node = self._awake()
        if node is None:
            return None
        wait_s = self._config.prefix_timeout_ms / 1000
        try:
            async with self._session.post(
                f"{self._config.nodes[node].daemon}/api/v1/prefix",
                json={"namespace": self._namespace, "keys": keys},
                timeout=aiohttp.ClientTimeout(total=wait_s),
            ) as answer:
                answer.raise_for_status()
                found = (await answer.json())["nodes"]
                return {one["node_id"]: one["prefix"] * self._page_tokens for one in found}
        except (aiohttp.ClientError, TimeoutError, asyncio.TimeoutError, ValueError, KeyError):
            self.counts["unanswered"] += 1
            self._quiet_until[node] = time.monotonic() + _QUIET_S
            return None

    def _awake(self) -> str | None:
        now = time.monotonic()
        for node in itertools.islice(self._turns, len(self._quiet_until)):
            if now >= self._quiet_until[node]:
                return node
        return None

    def fetch(self, node: str, keys: list[str]) -> None:
        """Tells the node's daemon to bring these pages before the engine asks. Does not wait."""
        if time.monotonic() < self._no_hints_until[node] or len(self._hints) >= _HINTS_MAX:
            self.counts["hints_left_out"] += 1
            return
        task = asyncio.ensure_future(self._send(node, keys))
        self._hints.add(task)
        task.add_done_callback(self._hints.discard)

    async def _send(self, node: str, keys: list[str]) -> None:
        number = next(self._numbers)
        envelope = {
            "protocol_version": "1.0",
            "message_id": f"router-{number}",
            "actions": [
                {
                    "action_id": "1",
                    "action_type": "kv.fetch",
                    "action_version": "1.0",
                    "payload": {"namespace": self._namespace, "keys": keys},
                }
            ],
        }
        try:
            headers = self._headers()
        except ValueError as error:
            self._stop_hints(node, str(error))
            return
        try:
            async with self._session.post(
                f"{self._config.nodes[node].daemon}/api/v1/hints",
                json=envelope,
                headers=headers,
                timeout=aiohttp.ClientTimeout(total=_HINT_S),
            ) as answer:
                if answer.status == 200:
                    [outcome] = (await answer.json())["outcomes"]
                    self.counts[f"hints_{outcome['outcome']}"] += 1
                    return
                why = (await answer.text()).strip()[:200]
        except (aiohttp.ClientError, TimeoutError, asyncio.TimeoutError, ValueError, KeyError) as e:
            self.counts["hints_failed"] += 1
            _log.debug("no hint to %s: %r", node, e)
            return
        if answer.status in (401, 404, 405):  # an older daemon, no router_port, or another token
            self._stop_hints(node, f"it takes none (status {answer.status}: {why})")
        else:
            self.counts["hints_failed"] += 1

    def _stop_hints(self, node: str, why: str) -> None:
        self.counts["hints_failed"] += 1
        self._no_hints_until[node] = time.monotonic() + _NO_HINTS_S
        _log.warning("no hints go to %s for %d s: %s", node, _NO_HINTS_S, why)

    def _headers(self) -> dict[str, str]:
        """ValueError: the token cannot be read."""
        if not self._config.token_file:
            return {}
        return {"authorization": f"Bearer {self._config.token()}"}

    async def close(self) -> None:
        for task in self._hints:
            task.cancel()
        await asyncio.gather(*self._hints, return_exceptions=True)

    def document(self) -> dict[str, Any]:
        now = time.monotonic()
        silent = [node for node, until in self._quiet_until.items() if now < until]
        return {"silent": silent, **self.counts}
