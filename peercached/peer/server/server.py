"""The gRPC server on the meta port (peer/server/servicer.py answers the calls)."""

from __future__ import annotations

from dataclasses import dataclass

from peercached.news import News
from peercached.peer.rpc import wire
from peercached.peer.rpc.auth import Secret
from peercached.peer.rpc.connection_limits import ConnectionLimits
from peercached.peer.rpc.listener import Door, Listener
from peercached.peer.rpc.tls import Tls
from peercached.peer.server.auth_interceptor import AuthInterceptor
from peercached.peer.server.servicer import PeerServicer

CONNECTIONS_MAX = 8192
DOOR = Door(
    "meta_port",
    "peers",
    "meta_port (and the heads' discovery_addr) or host",
    [
        ("grpc.max_receive_message_length", wire.MESSAGE_BYTES_MAX),
        ("grpc.max_send_message_length", wire.MESSAGE_BYTES_MAX),
        # Live callers check their links (client.py).
        ("grpc.http2.min_ping_interval_without_data_ms", 2000),
        ("grpc.http2.max_ping_strikes", 0),
        ("grpc.max_concurrent_streams", 1024),
        ("grpc.max_allowed_incoming_connections", CONNECTIONS_MAX),
    ],
    # Publish streams of all holders, lookups of all readers, and reserve for bursts.
    calls_max=8192,
    client_certificates=True,
)


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
        handler = self._interceptor.stand_before(self._servicer)
        self._listener = Listener(DOOR, handler, self._limits, self._tls)
        self.tls_mode_changed = self._listener.tls_mode_changed
        self.stop = self._listener.stop

    async def start(self, host: str, port: int) -> int:
        port = await self._listener.start(host, port)
        watch = self._listener.watch
        watch("the cluster secret's file", lambda: self._secret.watch(self._news))
        if self._tls is not None:
            watch("the TLS files", self._tls.watch)
        return port
