"""The handshake: both sides prove the cluster secret, and the caller gets a session.

    caller -> {caller, nonce}                             server -> {server, server_nonce}
    caller -> {caller, nonce, server_nonce, proof}        server -> {proof, session, read_token}

Each proof is an HMAC-SHA256 under the cluster secret. It covers the role, the protocol version, the
prover's address and both nonces, so it cannot be replayed, nor reflected to its maker. A signature
of the same text follows, by the key in the prover's address: a node that knows the secret can speak
only for itself. The text also holds the other side's key, so a server cannot relay the caller's
proof to a third node. The session goes into the metadata of every later call. The read token opens
the data port to the caller's incarnation. Without TLS an eavesdropper can read both.

The caller's half travels in the headers of its call (HANDSHAKE_KEY, a packed HandshakeRequest),
because the server reads no message of a stranger (auth_interceptor.py).
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
import struct
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from peercached.config.cluster_secret import ClusterSecret, SecretProblem, name_of, read_secret
from peercached.directory.placement import Change, Placement
from peercached.membership import NodeAddress
from peercached.news import Event, News
from peercached.peer.rpc.failures import CallFailed
from peercached.peer.rpc.node_key import NodeKey
from peercached.peer.rpc.watched_files import FileProblem, WatchedFiles

if TYPE_CHECKING:
    from peercached._native import Engine

log = logging.getLogger(__name__)

# Two nodes speak the newest version that both know. A release knows its own version and the one
# before it, so that a cluster can be upgraded node by node (docs/operations.md, "Upgrade").
PROTOCOL_VERSION = 18
PROTOCOL_OLDEST = 18
NONCE_BYTES = 16
TOKEN_BYTES = 32
MAC_BYTES = 32
SESSION_KEY = "peercached-session"
OWES_KEY = "peercached-owes"  # the callee may have missed removals: peer/removals/catch_up.py
HANDSHAKE_KEY = "peercached-handshake-bin"
HANDSHAKES_MAX = 1024  # begun and not finished
HANDSHAKES_PER_HOST_MAX = 128  # a flood displaces only handshakes of its own host
HANDSHAKE_S = 10.0
SESSIONS_MAX = 4096


class OtherProtocol(ValueError):
    """Two nodes have no protocol version in common; the text is for people."""


def agreed_protocol(newest: int, oldest: int) -> int:
    """The version to speak with a node that knows these. OtherProtocol if there is none. An
    `oldest` of 0: it knows `newest` alone."""
    version = min(newest, PROTOCOL_VERSION)
    if version < max(oldest or newest, PROTOCOL_OLDEST):
        raise OtherProtocol(
            f"one node speaks protocol {newest}, the other one {PROTOCOL_OLDEST} to "
            f"{PROTOCOL_VERSION}: upgrade the older one, one release after the other"
        )
    return version


class AuthError(CallFailed):
    """The other side failed to prove its identity; the text is for people."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The statement that a proof covers: this is `prover`, in this handshake. `towards` is the
    other side's public key, or empty if it has none. `protocol`: the version that both speak."""

    role: str  # "caller" or "server"
    prover: NodeAddress
    nonce: bytes
    server_nonce: bytes
    towards: bytes = b""
    protocol: int = PROTOCOL_VERSION

    def text(self) -> bytes:
        prover = self.prover
        return b"".join(
            (
                _sized(f"peercached {self.role}".encode()),
                struct.pack("<I", self.protocol),
                _sized(prover.node_id.encode()),
                _sized(prover.host.encode()),
                struct.pack(
                    "<QIIQI",
                    prover.incarnation,
                    prover.peer_port,
                    prover.data_port,
                    prover.pool_bytes,
                    len(prover.transports),
                ),
                *(_sized(name.encode()) + _sized(told) for name, told in prover.transports),
                _sized(prover.key),
                _sized(self.towards),
                _sized(self.nonce),
                _sized(self.server_nonce),
                _sized(prover.name.encode()) if prover.name else b"",
            )
        )


class SecretChanged(Event):
    """The cluster secret has other values than before."""


class Secret:
    """A node's credentials: the cluster secret and its own key.

    With an empty cluster secret anyone can join, and `status` warns of it. `key` is None if the
    node's address has no key. All but watch() is for any thread.
    """

    def __init__(self, value: bytes | ClusterSecret, key: NodeKey | None = None) -> None:
        self._fixed = value if isinstance(value, ClusterSecret) else ClusterSecret(value)
        self._file: WatchedFiles[ClusterSecret] | None = None
        self.key = key

    @staticmethod
    def load(path: str, key: NodeKey) -> Secret:
        """RuntimeError with a text for people if the file cannot be used."""
        secret = Secret(b"", key)
        if not path:
            return secret

        def read() -> ClusterSecret:
            try:
                found = read_secret(Path(path))
            except SecretProblem as error:
                raise FileProblem(f"{path} {error}: {error.remedy}") from error
            if secret._file is not None and found.digest_key != secret.cluster_key():
                raise FileProblem(
                    f"{path} has another key of the page digests: use peercachectl secret add, or "
                    "stop all daemons before the first one starts with it"
                )
            return found

        try:
            secret._file = WatchedFiles("the cluster secret's file", [path], read)
        except FileProblem as error:
            raise RuntimeError(str(error)) from error
        return secret

    def __repr__(self) -> str:
        return "Secret(...)"

    async def watch(self, news: News) -> None:
        """Takes up new files until cancelled."""
        if self._file is None:
            return
        async for _ in self._file.changes():
            proved, also = self.names()
            log.info(
                "the cluster secret's file has changed: this node proves secret %s%s",
                proved,
                f" and also accepts {', '.join(also)}" if also else "",
            )
            news.post(SecretChanged())

    @property
    def cluster(self) -> ClusterSecret:
        return self._fixed if self._file is None else self._file.current

    @property
    def problem(self) -> str:
        """Why the changed file cannot be used; empty if it can."""
        return "" if self._file is None else self._file.problem

    @property
    def value(self) -> bytes:
        return self.cluster.value

    @property
    def present(self) -> bool:
        return bool(self.value)

    @property
    def keeps_strangers_out(self) -> bool:
        """Whether a caller without a secret is refused."""
        return all(self.cluster.accepted)

    def names(self) -> tuple[str, list[str]]:
        """The name of the secret that this node proves, and of others that it accepts."""
        return name_of(self.value), list(map(name_of, self.cluster.others))

    def cluster_key(self) -> bytes:
        """The 16-byte key of the page digests: equal on all nodes, secret outside the cluster."""
        return self.cluster.digest_key

    def proof(self, claim: Claim, secret: bytes | None = None) -> bytes:
        """Proves the claim; its prover must be this node. `secret`: the cluster secret that the
        other side has proved."""
        text = claim.text()
        signature = self.key.sign(text) if claim.prover.key and self.key is not None else b""
        return self._mac(self.value if secret is None else secret, text) + signature

    def check(self, proof: bytes, claim: Claim) -> bytes:
        """The cluster secret of the proof. AuthError unless the claim's prover made it."""
        text, prover = claim.text(), claim.prover
        mac = proof[:MAC_BYTES]
        accepted = self.cluster.accepted
        proved = [one for one in accepted if hmac.compare_digest(mac, self._mac(one, text))]
        if not proved:
            raise AuthError(self._stranger(mac, text, prover))
        if prover.key and not NodeKey.verify(prover.key, proof[MAC_BYTES:], text):
            raise AuthError(
                f"{prover.node_id} at {prover.endpoint} does not have the key that it shows"
            )
        return proved[0]

    def _stranger(self, mac: bytes, text: bytes, prover: NodeAddress) -> str:
        """Why a proof of none of our secrets is refused."""
        who, file = f"{prover.node_id} at {prover.endpoint}", "cluster_secret_file"
        if hmac.compare_digest(mac, hmac.new(b"", text, hashlib.sha256).digest()):
            return f"{who} has no cluster secret: give it the {file} of the other nodes"
        if not self.present:
            what = "has a cluster secret, and the other side has none"
            return f"{who} {what}: give all nodes the same {file}"
        return f"{who} does not know the cluster secret: give all nodes the same {file}"

    def _mac(self, secret: bytes, text: bytes) -> bytes:
        return hmac.new(self.cluster.proof_key(secret), text, hashlib.sha256).digest()


def _sized(value: bytes) -> bytes:
    return struct.pack("<I", len(value)) + value


@dataclass(slots=True)
class Session:
    """A caller (one node incarnation) that has proved its identity."""

    caller: NodeAddress
    token: str  # hexadecimal, as in the metadata
    read_token: bytes
    secret: bytes = field(repr=False)  # the cluster secret that it proved last
    host: str  # that it called from
    has_tls: bool = False  # it can call a server that speaks TLS only


@dataclass(frozen=True, slots=True)
class _Begun:
    nonce: bytes
    at: float
    host: str


class Sessions:
    """The server's side of handshakes. Not thread safe; `now` is monotonic seconds.

    When full, it drops the least recently used session; the caller then repeats the handshake.
    A session and its read token for the data port begin and end together.
    """

    def __init__(self, secret: Secret, engine: Engine, placement: Placement) -> None:
        self._secret = secret
        self._engine = engine
        self._placement = placement
        self._begun: OrderedDict[bytes, _Begun] = OrderedDict()
        self._begun_by_host: dict[str, int] = {}
        self._by_token: OrderedDict[str, Session] = OrderedDict()
        self._by_caller: dict[tuple[str, int], Session] = {}
        self.refused = 0
        self.refused_last = ""  # the last refused caller's address, and why

    def _member(self, caller: NodeAddress) -> NodeAddress | None:
        """The member of our view with the caller's node id and incarnation."""
        node = self._placement.find(caller.node_id, caller.incarnation)
        return node.address if node is not None else None

    def begin(self, nonce: bytes, now: float, host: str = "") -> bytes:
        """Returns the server's nonce. ValueError if the caller's nonce has a wrong length."""
        if len(nonce) != NONCE_BYTES:
            raise ValueError(f"a nonce of {len(nonce)} bytes, not {NONCE_BYTES}")
        while self._begun and (
            len(self._begun) >= HANDSHAKES_MAX
            or now - next(iter(self._begun.values())).at > HANDSHAKE_S
        ):
            self._forget(next(iter(self._begun)))
        if self._begun_by_host.get(host, 0) >= HANDSHAKES_PER_HOST_MAX:
            self._forget(next(key for key, begun in self._begun.items() if begun.host == host))
        server_nonce = secrets.token_bytes(NONCE_BYTES)
        self._begun[server_nonce] = _Begun(nonce, now, host)
        self._begun_by_host[host] = self._begun_by_host.get(host, 0) + 1
        return server_nonce

    def _forget(self, server_nonce: bytes) -> _Begun | None:
        begun = self._begun.pop(server_nonce, None)
        if begun is not None:
            left = self._begun_by_host.pop(begun.host) - 1
            if left:
                self._begun_by_host[begun.host] = left
        return begun

    def finish(
        self,
        caller: NodeAddress,
        nonce: bytes,
        server_nonce: bytes,
        proof: bytes,
        now: float,
        protocol: int = PROTOCOL_VERSION,
    ) -> tuple[Session, bytes]:
        """Returns the session and our own proof. AuthError if the caller's proof is wrong."""
        begun = self._forget(server_nonce)
        if begun is None or begun.nonce != nonce or now - begun.at > HANDSHAKE_S:
            raise AuthError("this handshake was not begun here, or too long ago: begin again")
        try:
            own = self._placement.own.address
            claim = Claim("caller", caller, nonce, server_nonce, own.key, protocol)
            secret = self._secret.check(proof, claim)
            self._check_only(caller)
        except AuthError as error:
            self.refused += 1
            self.refused_last = f"{begun.host}: {error}"
            raise
        key = (caller.node_id, caller.incarnation)
        session = self._by_caller.get(key)
        if session is None:
            tokens = secrets.token_hex(TOKEN_BYTES), secrets.token_bytes(TOKEN_BYTES)
            session = Session(caller, *tokens, secret, begun.host)
            while len(self._by_token) >= SESSIONS_MAX:
                self.drop(next(iter(self._by_token.values())).caller)
            self._by_token[session.token] = session
            self._by_caller[key] = session
            self._engine.admit_reader(caller.node_id, caller.incarnation, session.read_token)
        session.secret = secret
        answer = Claim("server", own, nonce, server_nonce, caller.key, protocol)
        return session, self._secret.proof(answer, secret)

    def _check_only(self, caller: NodeAddress) -> None:
        """AuthError if our view has another process under the caller's name."""
        member = self._member(caller)
        if member is not None and not member.same_process(caller):
            raise AuthError(
                f"{caller.node_id} at {caller.endpoint} shows another key than "
                f"{member.node_id} at {member.endpoint}, which it says it is: give each node a "
                "node_id of its own"
            )
        # The view does not know this name yet, so the latest claim wins: an impostor that came
        # first must not keep the real node out.
        session = self._by_caller.get((caller.node_id, caller.incarnation))
        if session is not None and not session.caller.same_process(caller):
            log.warning(
                "another process claimed node id %s from %s: closing its session, the latest claim "
                "wins",
                caller.node_id,
                session.caller.endpoint,
            )
            self.drop(session.caller)

    def host_of(self, caller: NodeAddress) -> str:
        """The host that this process calls from. Without a session we take its own word for
        it, and reach it there."""
        session = self._by_caller.get((caller.node_id, caller.incarnation))
        if session is None or not session.caller.same_process(caller):
            return caller.host
        return session.host

    def secret_changed(self) -> None:
        """Ends the sessions of callers that proved a secret which is accepted no more."""
        for session in list(self._by_token.values()):
            if session.secret not in self._secret.cluster.accepted:
                self.drop(session.caller)

    def older(self) -> list[str]:
        """Node ids of members that proved another secret than this node proves, ascending."""
        value = self._secret.value
        others = [one.caller for one in self._by_token.values() if one.secret != value]
        return sorted({one.node_id for one in others if self._member(one) is not None})

    def without_tls(self) -> list[str]:
        """Node ids of members that cannot call a server that speaks TLS only, ascending."""
        others = [one.caller for one in self._by_token.values() if not one.has_tls]
        return sorted({one.node_id for one in others if self._member(one) is not None})

    def view_changed(self, change: Change) -> None:
        for node in change.removed:
            self.drop(node.address)
        for node in change.added:
            self.expel_impostors_of(node.address)

    def expel_impostors_of(self, member: NodeAddress) -> None:
        """Ends the session of another process that claimed to be this new member of our view."""
        session = self._by_caller.get((member.node_id, member.incarnation))
        if session is not None and not session.caller.same_process(member):
            log.warning(
                "an impostor claimed node id %s from %s: closing its session, the real node has "
                "joined the view",
                member.node_id,
                session.caller.endpoint,
            )
            self.drop(session.caller)

    def find(self, token: str) -> Session | None:
        session = self._by_token.get(token)
        if session is not None:
            # LRU order: a daemon that restarts in a loop must not evict the members' sessions.
            self._by_token.move_to_end(token)
        return session

    def drop(self, caller: NodeAddress) -> bool:
        session = self._by_caller.pop((caller.node_id, caller.incarnation), None)
        if session is None:
            return False
        del self._by_token[session.token]
        self._engine.expel_reader(caller.node_id, caller.incarnation)
        return True
