"""The gRPC server on `router_port`: its limits, and its part of the status."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

from peercached.component import Component, Stats
from peercached.hints.envelope import ENVELOPE_BYTES_MAX
from peercached.news import News
from peercached.peer.rpc.auth import Secret
from peercached.peer.rpc.connection_limits import ConnectionLimits
from peercached.peer.rpc.listener import Door, Listener
from peercached.peer.rpc.tls import Tls
from peercached.peer.server.refusals import Refusals
from peercached.routers.gate import Gate
from peercached.routers.servicer import RouterServicer
from peercached.routers.token import Tokens

log = logging.getLogger(__name__)

CONNECTIONS_MAX = 256
# More than an envelope needs, so that a larger one gets the refusal that names its limit.
MESSAGE_BYTES_MAX = 2 * ENVELOPE_BYTES_MAX
DOOR = Door(
    "router_port",
    "routers",
    "router_port or metrics_host",
    [
        ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
        ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
        ("grpc.max_concurrent_streams", 64),
        ("grpc.max_allowed_incoming_connections", CONNECTIONS_MAX),
    ],
    calls_max=256,
    # The token proves the caller. Without a secret there is none.
    client_certificates=False,
)


class RouterServer(Component):
    """start() raises OSError with the address and the remedy."""

    def __init__(
        self,
        servicer: RouterServicer,
        secret: Secret,
        tls: Tls | None,
        tokens: Tokens,
        news: News,
        clustered: bool,
    ) -> None:
        self._limits = ConnectionLimits(tls, DOOR.name)
        self._refusals = Refusals()
        gate = Gate(servicer, secret, tokens, self._limits, self._refusals)
        door = replace(DOOR, client_certificates=not secret.keeps_strangers_out)
        self._listener = Listener(door, gate, self._limits, tls)
        self._secret = secret
        self._tokens = tokens
        self._tls = tls
        self._news = news
        self._watches_files = not clustered  # else the meta port's server does
        self._port = 0
        self.tls_mode_changed = self._listener.tls_mode_changed
        self.stop = self._listener.stop

    async def start(self, host: str, port: int) -> None:
        self._port = await self._listener.start(host, port)
        log.info("hints and events are served to routers at %s:%d (router_port)", host, self._port)
        if not self._watches_files:
            return
        self._listener.watch("the cluster secret's file", lambda: self._secret.watch(self._news))
        if self._tls is not None:
            self._listener.watch("the TLS files", self._tls.watch)

    def sections(self, stats: Stats) -> dict[str, Any]:
        del stats
        connections = self._limits.document()["meta_connections"]
        return {
            "routers": {
                "port": self._port,
                "connections": connections if self._port else 0,
                "unauthenticated": self._tokens.refused,
                "malformed": self._refusals.malformed,
                "shut": self._limits.shut_unproven + self._limits.shut_crowd,
            }
        }
