"""The daemon's part that tells routers of pages: starts and ends it, and reports on it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TYPE_CHECKING, Any

from peercached.admin.status import KvEvents as Shown
from peercached.component import Component, Stats
from peercached.config import Config
from peercached.config.cluster_secret import ClusterSecret
from peercached.config.kv_event_keys import client_keys, server_keys
from peercached.health import Say, kinds
from peercached.kv_events.followers import Followers
from peercached.kv_events.shared_stream import SharedStream
from peercached.kv_events.stream import Batch, Stream
from peercached.timeout import within

if TYPE_CHECKING:
    from peercached._native import Engine
    from peercached.kv_events.sockets import EventSockets

log = logging.getLogger(__name__)

STOP_S = 4.0

Ask = Callable[[int, bytes], Awaitable[None]]


class KvEvents(Component):
    """On the event loop's thread. `ask`: asks a node (its index) for the names of its pages, and
    gives them to the engine. `secret`: the cluster secret at this moment."""

    def __init__(
        self,
        config: Config,
        engine: Engine,
        secret: Callable[[], ClusterSecret],
        ask: Ask,
    ) -> None:
        self._config = config
        self._engine = engine
        self._secret = secret
        self._ask = ask
        self._sockets: EventSockets | None = None
        self._followers: Followers | None = None
        self._stream: SharedStream
        self._asking: set[asyncio.Future[None]] = set()
        self._public = b""

    @property
    def is_on(self) -> bool:
        return self._config.kv_events_port != 0

    @property
    def auth(self) -> str:
        if self._config.kv_events_auth == "auto":
            return "curve" if self._secret().value else "none"
        return self._config.kv_events_auth

    def start(self) -> None:
        """RuntimeError with the remedy if a port cannot be bound."""
        if not self.is_on:
            return
        # ZMQ costs memory, and most daemons tell no events.
        from peercached.kv_events.sockets import EventSockets, Guard

        guard = None
        if self.auth == "curve":
            keys = server_keys(self._secret().value)
            self._public = keys.public
            guard = Guard(keys, self._may_subscribe)
        self._stream = SharedStream(self._engine, Stream(time.time_ns()))
        self._followers = Followers(self._stream)
        host, port = self._config.host, self._config.kv_events_port
        try:
            self._sockets = EventSockets(
                self._engine,
                host,
                port,
                self._stream,
                guard,
                self._ask_soon(),
                self._config.node_id,
                self._followers.woken,
            )
        except OSError as error:
            raise RuntimeError(
                f"kv_events_port {port} and {port + 1} cannot be used at {host}: "
                f"{error.strerror}; choose another kv_events_port, or 0"
            ) from error
        self._sockets.start()
        address = f"[{host}]" if ":" in host else host
        log.info(
            "events of pages are told at tcp://%s:%d and replayed at port %d (kv_events_port, %s)",
            address, port, port + 1, self.auth,
        )  # fmt: skip

    def _may_subscribe(self) -> set[bytes]:
        return {client_keys(one).public for one in self._secret().accepted if one}

    def _ask_soon(self) -> Callable[[int, bytes], None]:
        """For the thread of the sockets."""
        loop = asyncio.get_running_loop()

        def ask(holder: int, digests: bytes) -> None:
            task = asyncio.ensure_future(self._ask(holder, digests))
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)

        def soon(holder: int, digests: bytes) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(ask, holder, digests)

        return soon

    def follow(self, start: int) -> AsyncGenerator[Batch, None]:
        """See Followers.follow(). LookupError: no events are told here."""
        if self._followers is None:
            raise LookupError("this node tells no events: its kv_events_port is 0")
        return self._followers.follow(start)

    async def stop(self) -> None:
        if self._followers is not None:
            self._followers.end()
        for task in self._asking:
            task.cancel()
        await asyncio.gather(*self._asking, return_exceptions=True)
        if (sockets := self._sockets) is not None:
            loop = asyncio.get_running_loop()
            with contextlib.suppress(asyncio.TimeoutError):
                await within(STOP_S, loop.run_in_executor(None, sockets.stop, STOP_S))

    # --- the report

    def sections(self, stats: Stats) -> dict[str, Any]:
        del stats
        if self._sockets is None or self._followers is None:
            return {"kv_events": Shown().model_dump()}
        told = self._engine.kv_stats()
        counters = self._sockets.counters
        return {
            "kv_events": {
                "host": self._config.host,
                "port": self._config.kv_events_port,
                "auth": self.auth,
                "public_key": self._public.hex(),
                "of": "all" if told.pop("tells_all") else "own",
                **told,
                **vars(counters),
                "replays": self._stream.replays,
                "snapshots": self._stream.snapshots,
                "followers": len(self._followers),
                "followers_too_slow": self._followers.too_slow,
            }
        }

    def say(self, say: Say, stats: Stats) -> None:
        del stats
        if self._sockets is None:
            return
        if self._config.kv_events_of == "all" and not self._engine.kv_stats()["tells_all"]:
            say(
                kinds.EVENTS_OF_OWN_PAGES,
                "This node does not have the records of all nodes, so its events tell of its own "
                "pages only.",
                "Let routers subscribe to every node.",
            )
