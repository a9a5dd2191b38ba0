"""Carries out operators' requests to a running node, whichever interface they come by."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from peercached.config.keys import KEYS
from peercached.directory.placement import Placement
from peercached.history.curves import Curves
from peercached.history.event_log import EventLog
from peercached.node_status import NodeStatus
from peercached.peer.directory import trace
from peercached.peer.directory.cluster_wide import ClusterWide
from peercached.peer.directory.lookups import Lookups
from peercached.peer.handover.drain import Drain, Limits
from peercached.peer.removals.driver import RemovalDriver
from peercached.service.settings import Settings

if TYPE_CHECKING:
    from peercached._native import Engine

# Keys per evict. Their digests are computed on the event loop, so more would block it.
EVICT_KEYS_MAX = 4096


class Operations:
    """On the event loop's thread. `ring` gives the document of `peercachectl ring`."""

    def __init__(
        self,
        engine: Engine,
        placement: Placement,
        lookups: Lookups,
        cluster_wide: ClusterWide,
        removal_driver: RemovalDriver,
        drain: Drain,
        status: NodeStatus,
        history: EventLog,
        curves: Curves,
        ring: Callable[[], Mapping[str, Any]],
        settings: Settings,
    ) -> None:
        self._engine = engine
        self._placement = placement
        self._lookups = lookups
        self._cluster_wide = cluster_wide
        self._removal_driver = removal_driver
        self._drain = drain
        self._status = status
        self._history = history
        self._curves = curves
        self._ring = ring
        self._settings = settings

    # --- reads

    def status(self) -> Mapping[str, Any]:
        return self._status.document()

    async def locate(self, namespace: str, key: bytes) -> Mapping[str, Any]:
        return await self._cluster_wide.locate(namespace, key)

    def ring(self) -> Mapping[str, Any]:
        return self._ring()

    def config(self) -> Mapping[str, Any]:
        settings = self._settings
        return {
            "settings": {
                name: {"value": value, "source": settings.sources[name], "live": KEYS[name].live}
                for name, value in settings.config.model_dump().items()
            }
        }

    def events(self, after: int) -> Mapping[str, Any]:
        return self._history.document(after)

    def curves(self) -> Mapping[str, Any]:
        return self._curves.document()

    async def trace(self, namespace: str, key: bytes, seconds: float) -> Mapping[str, Any]:
        return await trace.follow_get(
            self._engine,
            self._placement,
            self._lookups,
            self._cluster_wide,
            namespace,
            key,
            seconds,
        )

    # --- changes

    def start_drain(self, bytes_max: int, seconds: float, stay: bool) -> None:
        self._drain.start(Limits(bytes_max, seconds, stay))

    async def undrain(self) -> None:
        await self._drain.undo()

    async def clear(self, namespace: str) -> list[str]:
        unreached = await self._cluster_wide.clear(namespace)
        self._history.add("clear", f"An operator cleared {self._shown(namespace)}.")
        return unreached

    def _shown(self, namespace: str) -> str:
        """Its id, because a name may contain a tenant's salt, and events are open to all."""
        return f"the namespace with the id {self._engine.namespace_id(namespace).hex()}"

    async def forget_node(self, node_id: str) -> list[str]:
        return await self._removal_driver.forget_everywhere(node_id)

    async def evict(self, namespace: str, keys: list[bytes]) -> tuple[int, int]:
        if len(keys) > EVICT_KEYS_MAX:
            raise ValueError(f"{len(keys)} keys at once: {EVICT_KEYS_MAX} are the limit")
        engine = self._engine
        return engine.evict(b"".join(engine.digest(namespace, key) for key in keys))

    async def evict_coldest(self, bytes_wanted: int | None) -> tuple[int, int]:
        wanted = 2**63 if bytes_wanted is None else bytes_wanted
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, self._engine.evict_coldest, wanted)

    async def reload(self) -> tuple[list[str], list[str], list[str]]:
        done = await self._settings.reload()
        return done.changed, done.needs_restart, done.problems
