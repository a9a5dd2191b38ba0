"""The gRPC server on the meta port (peer/server/servicer.py answers the calls)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio

from peercached.membership.view import join_host_port
from peercached.news import News
from peercached.observe.port_holder import cannot_listen
from peercached.peer.rpc import wire
from peercached.peer.rpc.auth import Secret
from peercached.peer.rpc.connection_limits import ConnectionLimits
from peercached.peer.rpc.tasks import retried
from peercached.peer.rpc.tls import Tls
from peercached.peer.server.auth_interceptor import AuthInterceptor
from peercached.peer.server.servicer import PeerServicer

log = logging.getLogger(__name__)

CONNECTIONS_MAX = 8192
# When tls_mode changes: how long open calls may go on, and the pause after a failed attempt.
CHANGE_GRACE_S = 0.2
LISTEN_AGAIN_S = 1.0
WATCH_AGAIN_S = 1.0
SERVER_OPTIONS: list[tuple[str, Any]] = [
    ("grpc.max_receive_message_length", wire.MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", wire.MESSAGE_BYTES_MAX),
    # gRPC buffers 64 KiB of each call that nobody reads. This probe would raise that to megabytes,
    # also for strangers. When the daemon reads a call, gRPC makes room for its whole message.
    ("grpc.http2.bdp_probe", 0),
    # Two daemons must not share a port by accident.
    ("grpc.so_reuseport", 0),
    # Closes connections of callers that vanished. Live callers check their links (client.py).
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 2000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 2000),
    ("grpc.http2.max_ping_strikes", 0),
    # Timeout for TLS and the HTTP/2 preface of a new connection.
    ("grpc.server_handshake_timeout_ms", 5000),
    ("grpc.max_concurrent_streams", 1024),
    ("grpc.max_allowed_incoming_connections", CONNECTIONS_MAX),
]
# Publish streams of all holders, lookups of all readers, and reserve for bursts.
CALLS_MAX = 8192


@dataclass(eq=False)
class PeerServer:
    """start() raises OSError with the address and the remedy."""

    _servicer: PeerServicer
    _interceptor: AuthInterceptor
    _limits: ConnectionLimits
    _secret: Secret
    _tls: Tls | None
    _news: News

    def __post_init__(self) -> None:
        self._server: Any = None
        self._watches: list[asyncio.Task[None]] = []
        self._serves_tls = False
        self._changing = asyncio.Lock()

    async def start(self, host: str, port: int) -> int:
        port = await self._listen(host, port)
        self._watch("the connections to meta_port", lambda: self._limits.watch(port))
        self._watch("the cluster secret's file", lambda: self._secret.watch(self._news))
        if self._tls is not None:
            self._watch("the TLS files", self._tls.watch)
        self._host, self._port = host, port
        return port

    def _watch(self, what: str, watch: Callable[[], Coroutine[Any, Any, None]]) -> None:
        work = retried(f"watching {what}", watch, WATCH_AGAIN_S)
        self._watches.append(asyncio.ensure_future(work))

    def tls_mode_changed(self) -> None:
        """Listens with TLS, or without, as the mode says now. Open calls end, and peers repeat
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
        log.warning("meta_port %s", "speaks TLS only" if self._serves_tls else "is plain")

    async def _listen(self, host: str, port: int) -> int:
        server: Any = grpc.aio.server(options=SERVER_OPTIONS, maximum_concurrent_rpcs=CALLS_MAX)
        server.add_generic_rpc_handlers((self._interceptor.stand_before(self._servicer),))
        address = join_host_port(host, port)
        tls = self._tls if self._tls is not None and self._tls.serves else None
        try:
            bound = (
                server.add_insecure_port(address)
                if tls is None
                else server.add_secure_port(address, _credentials(tls, self._limits))
            )
        except RuntimeError:  # gRPC gives no reason
            bound = 0
        if bound == 0:
            keys = "meta_port (and the heads' discovery_addr) or host"
            raise cannot_listen("peers", host, port, keys)
        await server.start()
        self._server, self._serves_tls = server, tls is not None
        return int(bound)

    async def stop(self, grace_s: float = 0.2) -> None:
        for watch in self._watches:
            watch.cancel()
        self._watches.clear()
        if self._server is not None:
            await self._server.stop(grace_s)
            self._server = None


def _credentials(tls: Tls, limits: ConnectionLimits) -> grpc.ServerCredentials:
    given = tls.generation

    def configuration() -> Any:
        now = tls.current
        return grpc.ssl_server_certificate_configuration(
            [(now.key, now.certificate)], root_certificates=now.ca
        )

    def newer() -> Any:
        """On a thread of gRPC, when a TLS handshake with a caller begins."""
        nonlocal given
        limits.new_connection()
        if given == tls.generation:
            return None
        given = tls.generation
        return configuration()

    return grpc.dynamic_ssl_server_credentials(configuration(), newer, True)
