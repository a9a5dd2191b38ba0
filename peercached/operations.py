"""Operators' requests to a running node, through any interface: the `StatusSource`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from peercached.config.keys import KEYS
from peercached.peer.directory import trace
from peercached.service.settings import Settings

if TYPE_CHECKING:
    from peercached.daemon import Daemon

# Keys per evict. Their digests are computed on the event loop, so more would block it.
EVICT_KEYS_MAX = 4096


class Operations:
    """On the event loop's thread."""

    def __init__(self, daemon: Daemon, settings: Settings) -> None:
        self._daemon = daemon
        self._settings = settings

    # --- reads

    def status(self) -> Mapping[str, Any]:
        return self._daemon.status()

    async def locate(self, namespace: str, key: bytes) -> Mapping[str, Any]:
        return await self._daemon.locate(namespace, key)

    def ring(self) -> Mapping[str, Any]:
        return self._daemon.ring()

    def config(self) -> Mapping[str, Any]:
        settings = self._settings
        return {
            "settings": {
                name: {"value": value, "source": settings.sources[name], "live": KEYS[name].live}
                for name, value in settings.config.model_dump().items()
            }
        }

    async def trace(self, namespace: str, key: bytes, seconds: float) -> Mapping[str, Any]:
        daemon = self._daemon
        return await trace.follow_get(
            daemon.engine,
            daemon.placement,
            daemon.lookups,
            daemon.cluster_wide,
            namespace,
            key,
            seconds,
        )

    # --- changes

    def start_drain(self, bytes_max: int, seconds: float, stay: bool) -> None:
        self._daemon.start_drain(bytes_max, seconds, stay)

    async def undrain(self) -> None:
        await self._daemon.undrain()

    async def clear(self, namespace: str) -> list[str]:
        return await self._daemon.clear(namespace)

    async def forget_node(self, node_id: str) -> list[str]:
        return await self._daemon.forget_node(node_id)

    async def evict(self, namespace: str, keys: list[bytes]) -> tuple[int, int]:
        if len(keys) > EVICT_KEYS_MAX:
            raise ValueError(f"{len(keys)} keys at once: {EVICT_KEYS_MAX} are the limit")
        engine = self._daemon.engine
        return engine.evict(b"".join(engine.digest(namespace, key) for key in keys))

    async def evict_coldest(self, bytes_wanted: int | None) -> tuple[int, int]:
        wanted = 2**63 if bytes_wanted is None else bytes_wanted
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, self._daemon.engine.evict_coldest, wanted)

    async def reload(self) -> tuple[list[str], list[str], list[str]]:
        done = await self._settings.reload()
        return done.changed, done.needs_restart, done.problems
