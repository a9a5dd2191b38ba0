"""Authentication, encryption and refused callers: the `security` part of the status document."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from peercached.component import Component, Stats
from peercached.config import Config
from peercached.config.private import PRIVATE_KEYS, WORKERS_GROUP, Readers, remedy
from peercached.directory.placement import Placement
from peercached.health import Say, kinds
from peercached.health.recent_growth import Lately
from peercached.peer.rpc.auth import Secret, Sessions
from peercached.peer.rpc.client import Peers
from peercached.peer.rpc.connection_limits import ConnectionLimits
from peercached.peer.rpc.tls import Tls
from peercached.peer.server.auth_interceptor import AuthInterceptor
from peercached.peer.server.handshakes import Handshakes
from peercached.peer.server.refusals import Refusals

if TYPE_CHECKING:
    from peercached._native import Engine


# Nodes named in `status` that proved another cluster secret.
OLDER_MAX = 64


def authenticates(secret: Secret, tls: Tls | None) -> bool:
    """Whether members prove their identity."""
    return secret.keeps_strangers_out or (tls is not None and tls.serves)


@dataclass(eq=False)
class SecurityStatus(Component):
    _config: Config
    _engine: Engine
    _placement: Placement
    _secret: Secret
    _tls: Tls | None
    _sessions: Sessions
    _limits: ConnectionLimits
    _refusals: Refusals
    _handshakes: Handshakes
    _interceptor: AuthInterceptor
    _peers: Peers
    _lately: Lately = field(default_factory=Lately, init=False)

    def __post_init__(self) -> None:
        self._readers = Readers(self._config, os.geteuid())

    def sections(self, stats: Stats) -> dict[str, Any]:
        del stats
        proved, also = self._secret.names()
        return {
            "security": {
                "cluster_secret": self._secret.present,
                "secret": proved,
                "secrets_also_accepted": also,
                "older_secret": self._sessions.older()[:OLDER_MAX],
                **(self._tls.document() if self._tls is not None else {"tls_mode": ""}),
                "without_tls": self._sessions.without_tls()[:OLDER_MAX],
                "called_plain": self._peers.plain()[:OLDER_MAX],
                "data_sealed": self._config.data_sealed,
                "refused_handshakes": self._sessions.refused,
                "misfit_certificates": self._handshakes.misfits,
                "unauthenticated_calls": self._interceptor.unauthenticated,
                **self._limits.document(),
            }
        }

    def control_counters(self, stats: Stats) -> dict[str, int]:
        del stats
        return {
            "malformed_calls": self._refusals.malformed,
            "unauthenticated_calls": self._interceptor.unauthenticated,
            "refused_handshakes": self._sessions.refused,
        }

    def say(self, say: Say, stats: Stats) -> None:
        self._say_peers(say)
        self._say_workers(say, stats.get("ipc", {}))
        self._say_strangers(say, stats)

    def _say_peers(self, say: Say) -> None:
        tls = self._tls
        if self._config.clustered and not authenticates(self._secret, tls):
            say(
                kinds.UNAUTHENTICATED,
                "Peers are not authenticated: whoever reaches meta_port can join.",
                "Give all nodes the same cluster_secret_file, or keep the network closed.",
            )
        self._say_secret(say)
        self._say_readers(say)
        if tls is not None:
            tls.say(say)
            if tls.calls and tls.calls_plain:
                self._say_tls_step(say, tls)
        if self._config.data_sealed:
            self._say_what_is_in_clear(say)
        if refused := self._lately.grown("handshakes", self._sessions.refused):
            say(
                kinds.HANDSHAKES_REFUSED,
                f"{refused} handshakes were refused in the last hour. The last caller was "
                f"{self._sessions.refused_last}.",
                "If that host belongs to this cluster, do there what the reason says. If not, "
                "correct discovery_addr there, or close meta_port to it. The log names all refused "
                "callers.",
            )
        for node_id, differs in self._handshakes.unlike.lately(time.monotonic()).items():
            say(
                kinds.SETTINGS_DIFFER,
                f"{node_id} was refused: {differs.partition(': ')[0]}.",
                "Give all nodes of the cluster the same value, and restart the node that differs.",
                about=node_id,
            )
        if misfits := self._lately.grown("misfits", self._handshakes.misfits):
            say(
                kinds.CERTIFICATES_MISFIT,
                f"{misfits} handshakes were refused in the last hour: the caller's certificate "
                "does not match its node id or host.",
                "Find them in the log; give each node a certificate of its own (peercachectl "
                "certs).",
            )

    def _say_tls_step(self, say: Say, tls: Tls) -> None:
        """The state between a cluster without TLS and one with TLS only, and the next step."""
        without, plain = self._sessions.without_tls(), self._peers.plain()
        if not tls.serves and without:
            state = f"These nodes have no TLS yet: {', '.join(without[:OLDER_MAX])}."
            step = (
                "Give them tls_ca, tls_cert, tls_key and tls_mode = accept, and restart them one "
                "after another."
            )
        elif not tls.serves:
            state = "No caller without TLS is known here; this node's meta_port is still plain."
            step = (
                "When status --all names no node without TLS, set tls_mode = prefer on all nodes, "
                "one after another: peercachectl reload is enough."
            )
        elif plain:
            state = f"Calls to these nodes are still plain: {', '.join(plain[:OLDER_MAX])}."
            step = "Set tls_mode = prefer there: peercachectl reload is enough."
        else:
            state = "All calls use TLS; this node would still call a peer without it."
            step = "Set tls_mode = require on all nodes: peercachectl reload is enough."
        say(
            kinds.TLS_PARTIAL,
            f"TLS is being switched on (tls_mode = {tls.mode}). {state}",
            f"{step} See docs/security.md, Switching TLS on.",
        )

    def _say_secret(self, say: Say) -> None:
        if self._secret.problem:
            say(
                kinds.SECRET_FILE_UNUSABLE,
                f"The changed cluster secret cannot be used: {self._secret.problem}. The old one "
                "stays in use.",
                "Repair the file; the daemon checks it every few seconds.",
            )
        if self._secret.cluster.next:
            say(
                kinds.SECRET_REPLACED,
                "The cluster secret is being replaced: this node accepts the next one, too."
                if self._secret.present
                else "The cluster gets its first secret: this node accepts it, and also nodes "
                "without one.",
                "When all nodes have the new file, run peercachectl secret use.",
            )
        elif self._secret.cluster.former:
            older = ", ".join(self._sessions.older()[:OLDER_MAX])
            say(
                kinds.SECRET_REPLACED,
                "The cluster secret is being replaced: this node still accepts the former one."
                + (f" These nodes still prove it: {older}." if older else ""),
                "When this finding names no node on any host, run peercachectl secret drop.",
            )

    def _say_readers(self, say: Say) -> None:
        for key, who in self._readers.now().items():
            say(
                kinds.PRIVATE_FILE_OPEN,
                f"{key} can be read by {who}. With it they can {PRIVATE_KEYS[key]}.",
                f"As root: {remedy(Path(getattr(self._config, key)))}. Put engines' users into "
                f"{WORKERS_GROUP} alone.",
            )

    def _say_strangers(self, say: Say, stats: Stats) -> None:
        unauthorised = stats.get("tcp_server", {}).get("unauthorised", 0)
        if unauthorised := self._lately.grown("unauthorised", unauthorised):
            say(
                kinds.DATA_PORT_STRANGERS,
                f"{unauthorised} connections to data_port were refused in the last hour: no valid "
                "session token.",
                "A few are normal while peers join. The log names their addresses.",
            )
        limits = self._limits
        silent = self._lately.grown("silent", limits.silent)
        if self._tls is not None and self._tls.serves and silent:
            say(
                kinds.TLS_FAILED,
                f"{silent} connections to meta_port failed the TLS handshake, or ended without a "
                "call, in the last hour.",
                "Find their addresses in the log: if they belong here, compare tls_ca, the dates "
                "of their certificates, and the clocks.",
            )
        if shut := self._lately.grown("shut", limits.shut_strangers):
            say(
                kinds.META_PORT_STRANGERS,
                f"{shut} connections to meta_port were closed in the last hour: they did not "
                "authenticate in time, or were too many.",
                "Find their addresses in the log and keep them off this port.",
            )

    def _say_what_is_in_clear(self, say: Say) -> None:
        if names := " and ".join(map(str.upper, self._engine.own_transports)):
            say(
                kinds.RDMA_IN_CLEAR,
                f"Pages sent over {names} are not encrypted: the daemon cannot encrypt one-sided "
                "READs.",
                "Encrypt the fabric itself (MACsec or IPsec in the cards), or set protocol = "
                '"tcp".',
            )
        nodes = self._placement.nodes.values()
        open_ports = sorted(
            node.address.node_id
            for node in nodes
            if node is not self._placement.own and node.data_ready and not node.data_sealed
        )
        if open_ports and not (self._tls is not None and self._tls.calls_plain):
            say(
                kinds.PEERS_IN_CLEAR,
                f"Pages from {', '.join(open_ports)} are sent unencrypted: tls_data_port is off "
                "there.",
                "Give all nodes the same tls_data_port.",
            )

    def _say_workers(self, say: Say, ipc: Mapping[str, Any]) -> None:
        if forbidden := self._lately.grown("forbidden", ipc.get("forbidden", 0)):
            say(
                kinds.WORKERS_FORBIDDEN,
                f"{forbidden} connections to the workers' socket were refused in the last hour: "
                "their users are neither in worker_users nor in worker_groups.",
                "Find them in the log; add their user or group if they belong here.",
            )
        crowded = ipc.get("crowded", 0) + ipc.get("late_hellos", 0)
        if crowded := self._lately.grown("crowded", crowded):
            say(
                kinds.WORKERS_CROWD,
                f"{crowded} connections to the workers' socket were closed in the last hour: too "
                "many from one process or user, or silent after connecting.",
                "Find the process in the log; if its threads need them all, raise workers_max.",
            )
        if refused := self._lately.grown("requests", ipc.get("requests_refused", 0)):
            say(
                kinds.WORKER_REQUESTS_REFUSED,
                f"{refused} worker requests were refused in the last hour: too many large requests "
                "at once used up the request memory.",
                "Find the process in the log; let it ask for fewer pages at once.",
            )
