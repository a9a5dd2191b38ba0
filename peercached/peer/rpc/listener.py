"""A gRPC server on a port of its own, plain or with TLS as the key tls_mode says now.

The server reads no message of a caller that its handler has not admitted at the call's headers. The
limits shut connections that admit themselves to nothing (connection_limits.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio

from peercached.membership.view import join_host_port
from peercached.observe.port_holder import cannot_listen
from peercached.peer.rpc.connection_limits import ConnectionLimits
from peercached.peer.rpc.tasks import retried
from peercached.peer.rpc.tls import Tls

log = logging.getLogger(__name__)

# When tls_mode changes: how long open calls may go on, and the pause after a failed attempt.
CHANGE_GRACE_S = 0.2
LISTEN_AGAIN_S = 1.0
WATCH_AGAIN_S = 1.0
COMMON_OPTIONS: tuple[tuple[str, Any], ...] = (
    # gRPC buffers 64 KiB of each call that nobody reads. This probe would raise that to megabytes,
    # also for strangers. When the daemon reads a call, gRPC makes room for its whole message.
    ("grpc.http2.bdp_probe", 0),
    # Two daemons must not share a port by accident.
    ("grpc.so_reuseport", 0),
    # Closes connections of callers that vanished.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 2000),
    ("grpc.http2.max_pings_without_data", 0),
    # Timeout for TLS and the HTTP/2 preface of a new connection.
    ("grpc.server_handshake_timeout_ms", 5000),
)


@dataclass(frozen=True)
class Door:
    """How one port is served."""

    name: str  # the key of its port
    serves: str  # for people, such as "peers"
    keys: str  # that an operator can change if the port is taken
    options: Sequence[tuple[str, Any]]
    calls_max: int
    client_certificates: bool  # whether TLS asks callers for a certificate


@dataclass(eq=False)
class Listener:
    """On the event loop's thread. start() raises OSError with the address and the remedy."""

    _door: Door
    _handler: Any  # a grpc.GenericRpcHandler
    _limits: ConnectionLimits
    _tls: Tls | None

    def __post_init__(self) -> None:
        self._server: Any = None
        self._watches: list[asyncio.Task[None]] = []
        self._serves_tls = False
        self._changing = asyncio.Lock()

    async def start(self, host: str, port: int) -> int:
        port = await self._listen(host, port)
        self.watch(f"the connections to {self._door.name}", lambda: self._limits.watch(port))
        self._host, self._port = host, port
        return port

    def watch(self, what: str, watch: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Runs `watch` again and again until stop()."""
        work = retried(f"watching {what}", watch, WATCH_AGAIN_S)
        self._watches.append(asyncio.ensure_future(work))

    def tls_mode_changed(self) -> None:
        """Listens with TLS, or without, as the mode says now. Open calls end, and callers repeat
        them."""
        self._watches = [watch for watch in self._watches if not watch.done()]
        self._watches.append(asyncio.ensure_future(self._listen_anew()))

    async def _listen_anew(self) -> None:
        async with self._changing:
            if self._server is None or self._tls is None or self._serves_tls == self._tls.serves:
                return
            await self._server.stop(CHANGE_GRACE_S)
            while True:
                try:
                    await self._listen(self._host, self._port)
                    break
                except OSError as error:
                    log.error("%s (will retry)", error)
                    await asyncio.sleep(LISTEN_AGAIN_S)
        how = "speaks TLS only" if self._serves_tls else "is plain"
        log.warning("%s %s", self._door.name, how)

    async def _listen(self, host: str, port: int) -> int:
        options = [*COMMON_OPTIONS, *self._door.options]
        server: Any = grpc.aio.server(options=options, maximum_concurrent_rpcs=self._door.calls_max)
        server.add_generic_rpc_handlers((self._handler,))
        address = join_host_port(host, port)
        tls = self._tls if self._tls is not None and self._tls.serves else None
        try:
            bound = (
                server.add_insecure_port(address)
                if tls is None
                else server.add_secure_port(address, self._credentials(tls))
            )
        except RuntimeError:  # gRPC gives no reason
            bound = 0
        if bound == 0:
            raise cannot_listen(self._door.serves, host, port, self._door.keys)
        await server.start()
        self._server, self._serves_tls = server, tls is not None
        return int(bound)

    def _credentials(self, tls: Tls) -> grpc.ServerCredentials:
        given = tls.generation

        def configuration() -> Any:
            now = tls.current
            return grpc.ssl_server_certificate_configuration(
                [(now.key, now.certificate)], root_certificates=now.ca
            )

        def newer() -> Any:
            """On a thread of gRPC, when a TLS handshake with a caller begins."""
            nonlocal given
            self._limits.new_connection()
            if given == tls.generation:
                return None
            given = tls.generation
            return configuration()

        return grpc.dynamic_ssl_server_credentials(
            configuration(), newer, self._door.client_certificates
        )

    async def stop(self, grace_s: float = 0.2) -> None:
        for watch in self._watches:
            watch.cancel()
        self._watches.clear()
        if self._server is not None:
            await self._server.stop(grace_s)
            self._server = None
