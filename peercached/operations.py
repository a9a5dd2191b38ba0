"""Carries out operators' requests to a running node, whichever interface they come by.

There is a method for each call of proto/admin.proto (admin/calls.py says how it is called).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from peercached.config.keys import KEYS
from peercached.directory import ring_report
from peercached.directory.layout import holder_of
from peercached.directory.placement import Placement
from peercached.hints.executor import Hints
from peercached.history.curves import Curves
from peercached.history.event_log import EventLog
from peercached.node_status import NodeStatus
from peercached.observe.process import process_document
from peercached.peer.directory.records import Records
from peercached.peer.handover.drain import Limits
from peercached.peer.handover.handover import Handover
from peercached.peer.handover.parts import rows_in
from peercached.peer.pins.pins import Pins, Wish, check_seconds
from peercached.peer.removals.driver import RemovalDriver
from peercached.peer.server import trace
from peercached.peer.server.cluster_wide import ClusterWide
from peercached.service.settings import Settings

if TYPE_CHECKING:
    from peercached._native import Engine

# Keys per call. Their digests are computed on the event loop, so more would block it.
KEYS_MAX = 4096
# Pages in one list. Their holders are looked up, too.
LISTED_MAX = 1000
LOOKUP_S = 2.0


@dataclass(eq=False)
class Operations:
    """On the event loop's thread."""

    _engine: Engine
    _placement: Placement
    _records: Records
    _cluster_wide: ClusterWide
    _removal_driver: RemovalDriver
    _handover: Handover
    _pins: Pins
    _hints: Hints
    _status: NodeStatus
    _history: EventLog
    _curves: Curves
    _settings: Settings

    def __post_init__(self) -> None:
        # Answered by one part alone.
        self.status = self._status.document
        self.locate = self._cluster_wide.locate
        self.events = self._history.document
        self.curves = self._curves.document
        self.undrain = self._handover.drain.undo

    @property
    def _own_id(self) -> str:
        return self._placement.own.address.node_id

    # --- reads

    def ring(self) -> Mapping[str, Any]:
        return ring_report.document(self._engine, self._placement)

    def config(self) -> Mapping[str, Any]:
        settings = self._settings
        return {
            "settings": {
                name: {"value": value, "source": settings.sources[name], "live": KEYS[name].live}
                for name, value in settings.config.model_dump().items()
            }
        }

    async def process(self) -> Mapping[str, Any]:
        document = await asyncio.get_running_loop().run_in_executor(None, process_document)
        return {"node_id": self._own_id, **document}

    async def trace(self, namespace: str, key: bytes, seconds: float) -> Mapping[str, Any]:
        return await trace.follow_get(
            self._engine,
            self._placement,
            self._cluster_wide,
            namespace,
            key,
            seconds,
        )

    async def pages(self, order: str, limit: int, namespace: str) -> Mapping[str, Any]:
        if order not in ("hot", "pinned"):
            raise ValueError(f"pages in the order {order!r}: there are hot and pinned")
        if not 1 <= limit <= LISTED_MAX:
            raise ValueError(f"a list of {limit} pages: 1 to {LISTED_MAX} can be had")
        engine = self._engine
        own = engine.namespace_id(namespace) if namespace else b""
        loop = asyncio.get_running_loop()
        pages: list[dict[str, Any]]
        if order == "hot":
            hot = await loop.run_in_executor(None, engine.hottest, limit, own)
            pages = [
                {"digest": d, "namespace_id": n, "bytes": length, "reads": reads, "idle_s": idle_s}
                for d, n, length, reads, idle_s in hot
            ]
        else:
            pages = [
                {"digest": d, "namespace_id": n, "bytes": length, "left_s": left_s}
                for d, n, length, left_s in engine.pinned(limit, own)
            ]
        names = {
            engine.namespace_id(one["name"]): one["name"]
            for one in engine.stats().get("namespaces", [])
        }
        holders = await self._holders([page["digest"] for page in pages])
        for page in pages:
            page["namespace"] = names.get(page["namespace_id"], "")
            page["holders"] = holders[page["digest"]]
        return {"node_id": self._own_id, "order": order, "pages": pages}

    async def _holders(self, digests: list[bytes]) -> dict[bytes, list[str]]:
        nodes = self._placement.nodes
        holders = {digest: {self._own_id} for digest in digests}
        for digest, row in rows_in(await self._records.find(b"".join(digests), LOOKUP_S)):
            node = nodes.get(holder_of(row))
            if node is not None:
                holders[digest].add(node.address.node_id)
        return {digest: sorted(names) for digest, names in holders.items()}

    # --- changes

    async def pin(
        self,
        namespace: str,
        keys: list[bytes],
        seconds: float,
        prefix: bool,
        here: bool,
        timeout_s: float,
    ) -> Mapping[str, Any]:
        if seconds <= 0:
            raise ValueError(f"a pin for {seconds:g} seconds: give a time above 0")
        check_seconds(seconds)
        return await self._pin(namespace, keys, seconds, prefix, here, timeout_s)

    async def unpin(self, namespace: str, keys: list[bytes], timeout_s: float) -> Mapping[str, Any]:
        return await self._pin(namespace, keys, 0.0, False, False, timeout_s)

    async def _pin(
        self,
        namespace: str,
        keys: list[bytes],
        seconds: float,
        prefix: bool,
        here: bool,
        timeout_s: float,
    ) -> Mapping[str, Any]:
        digests = self._digests(namespace, keys)
        namespace_id = self._engine.namespace_id(namespace)
        epoch = self._engine.namespace_epoch(namespace_id)
        wish = Wish(namespace_id, epoch, digests, seconds, prefix, here)
        pinned = await self._pins.pin(wish, _checked_timeout(timeout_s))
        outcomes = [pinned.outcome(digest) for digest in digests]
        return {"outcomes": outcomes, "why_not": pinned.text}

    async def hint(self, envelope: bytes) -> Mapping[str, Any]:
        outcomes = await self._hints.take(envelope, wait=True)
        return {"outcomes": [outcome.document() for outcome in outcomes]}

    async def move(
        self, namespace: str, keys: list[bytes], to: str, timeout_s: float
    ) -> Mapping[str, Any]:
        digests = self._digests(namespace, keys)
        moved = await self._handover.move.move(digests, to, _checked_timeout(timeout_s))
        return {"node_id": self._own_id, **asdict(moved)}

    def _digests(self, namespace: str, keys: list[bytes]) -> list[bytes]:
        if not keys or not all(keys):
            raise ValueError("give keys, none of them empty")
        if len(keys) > KEYS_MAX:
            raise ValueError(f"{len(keys)} keys at once: {KEYS_MAX} are the limit")
        return [self._engine.digest(namespace, key) for key in keys]

    def drain(self, bytes_max: int, seconds: float, stay: bool) -> None:
        """Returns at once; `status` shows the progress."""
        self._handover.drain.start(Limits(bytes_max, seconds, stay))

    async def clear(self, namespace: str) -> Mapping[str, Any]:
        unreached = await self._cluster_wide.clear(namespace)
        self._history.add("clear", f"An operator cleared {self._shown(namespace)}.")
        return {"unreached": unreached}

    async def forget_node(self, node_id: str, listening: bool) -> Mapping[str, Any]:
        return {"unreached": await self._removal_driver.forget_everywhere(node_id, listening)}

    def _shown(self, namespace: str) -> str:
        """Its id, because a name may contain a tenant's salt, and events are open to all."""
        return f"the namespace with the id {self._engine.namespace_id(namespace).hex()}"

    async def evict(
        self, namespace: str, keys: list[bytes], coldest_bytes: int, everything: bool
    ) -> Mapping[str, Any]:
        if sum((bool(keys), coldest_bytes > 0, everything)) != 1:
            raise ValueError("say which pages should go: keys, or how many bytes, or all")
        if keys:
            pages, evicted = self._engine.evict(b"".join(self._digests(namespace, keys)))
        else:
            wanted = 2**63 if everything else coldest_bytes
            loop = asyncio.get_running_loop()
            pages, evicted = await loop.run_in_executor(None, self._engine.evict_coldest, wanted)
        return {"node_id": self._own_id, "pages": pages, "bytes": evicted}

    async def reload(self) -> Mapping[str, Any]:
        return asdict(await self._settings.reload())


def _checked_timeout(timeout_s: float) -> float:
    if not 0 < timeout_s <= 3600:
        raise ValueError(f"a timeout of {timeout_s:g} seconds: above 0, and at most 3600")
    return timeout_s
