"""Proof of the cluster secret, and the sessions it opens.

    caller -> {caller, nonce}                             server -> {server, server_nonce}
    caller -> {caller, nonce, server_nonce, proof}        server -> {proof, session, read_token}

Each proof is an HMAC-SHA256 under the cluster secret over a word for the role, the protocol
version, the prover's address and both nonces: it cannot be replayed, nor reflected to its
maker. Behind it stands a signature of the same text, by the key that is in the prover's address:
so whoever knows the secret speaks for itself only. The other side's key is in the text, too: who
is called cannot pass a proof on to a third. The session goes into the metadata of every
later call; the read token opens the data port to the caller's incarnation. Without TLS both can be
read by whoever reads the network.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
import struct
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from peercached.membership import NodeAddress
from peercached.peer.rpc.node_key import NodeKey

log = logging.getLogger(__name__)

PROTOCOL_VERSION = 11
NONCE_BYTES = 16
TOKEN_BYTES = 32
MAC_BYTES = 32
SESSION_KEY = "peercached-session"
HANDSHAKES_MAX = 1024  # begun and not finished
HANDSHAKES_PER_HOST_MAX = 128  # of them: who begins without end only spoils its own
HANDSHAKE_S = 10.0
SESSIONS_MAX = 4096


class AuthError(Exception):
    """The other side did not prove what it had to; the text is for people."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What a proof is of: this is `prover`, in this handshake. `towards`: the other side's public
    key; empty if it has none."""

    role: str  # "caller" or "server"
    prover: NodeAddress
    nonce: bytes
    server_nonce: bytes
    towards: bytes = b""

    def text(self) -> bytes:
        prover = self.prover
        return b"".join(
            (
                _sized(f"peercached {self.role}".encode()),
                struct.pack("<I", PROTOCOL_VERSION),
                _sized(prover.node_id.encode()),
                _sized(prover.host.encode()),
                struct.pack(
                    "<QIIQI",
                    prover.incarnation,
                    prover.peer_port,
                    prover.data_port,
                    prover.pool_bytes,
                    prover.rails,
                ),
                _sized(prover.key),
                _sized(self.towards),
                _sized(self.nonce),
                _sized(self.server_nonce),
            )
        )


@dataclass(frozen=True, slots=True)
class Secret:
    """What a node proves itself with: the cluster secret, and its own key.

    `value` empty: whoever likes may be a member, and `status` says so. `key`: None where an address
    has none.
    """

    value: bytes
    key: NodeKey | None = None

    @staticmethod
    def load(path: str, key: NodeKey) -> Secret:
        return Secret(Path(path).read_bytes().strip() if path else b"", key)

    def __repr__(self) -> str:
        return "Secret(...)"

    @property
    def present(self) -> bool:
        return bool(self.value)

    def cluster_key(self) -> bytes:
        """16 bytes that key the digests: the same on all nodes, unknown outside."""
        return hashlib.blake2b(self.value, digest_size=16, person=b"peercached keys").digest()

    def proof(self, claim: Claim) -> bytes:
        """The claim's prover is this node."""
        text = claim.text()
        signature = self.key.sign(text) if claim.prover.key and self.key is not None else b""
        return self._mac(text) + signature

    def check(self, proof: bytes, claim: Claim) -> None:
        """AuthError unless the claim's prover has made it."""
        text, prover = claim.text(), claim.prover
        if not hmac.compare_digest(proof[:MAC_BYTES], self._mac(text)):
            raise AuthError(
                f"{prover.node_id} at {prover.endpoint} does not know the cluster secret: "
                "give all nodes the same cluster_secret_file"
            )
        if prover.key and not NodeKey.verify(prover.key, proof[MAC_BYTES:], text):
            raise AuthError(
                f"{prover.node_id} at {prover.endpoint} does not have the key that it shows"
            )

    def _mac(self, text: bytes) -> bytes:
        return hmac.new(self.value, text, hashlib.sha256).digest()


def _sized(value: bytes) -> bytes:
    return struct.pack("<I", len(value)) + value


@dataclass(frozen=True, slots=True)
class Session:
    """One caller (a node incarnation) that has proved itself."""

    caller: NodeAddress
    token: str  # hexadecimal, as in the metadata
    read_token: bytes


@dataclass(frozen=True, slots=True)
class _Begun:
    nonce: bytes
    at: float
    host: str


class Sessions:
    """The server's side of handshakes. Bounded: the session that was longest of no use gives
    way, and its owner shakes hands again. Not thread safe; `now` is monotonic seconds.

    `admit` and `expel` open and shut the data port to (node id, incarnation): a session and its
    read token come and go together.
    """

    def __init__(
        self,
        secret: Secret,
        own: Callable[[], NodeAddress],
        admit: Callable[[str, int, bytes], None],
        expel: Callable[[str, int], None],
        member: Callable[[NodeAddress], NodeAddress | None] = lambda _: None,
    ) -> None:
        """`member`: that of our view which has the node id and incarnation of this caller."""
        self._member = member
        self._secret = secret
        self._own = own
        self._admit = admit
        self._expel = expel
        self._begun: OrderedDict[bytes, _Begun] = OrderedDict()
        self._begun_by_host: dict[str, int] = {}
        self._by_token: OrderedDict[str, Session] = OrderedDict()
        self._by_caller: dict[tuple[str, int], Session] = {}
        self.refused = 0

    def begin(self, nonce: bytes, now: float, host: str = "") -> bytes:
        """The server's nonce for a caller's, who calls from `host`. ValueError if that is none."""
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
        self, caller: NodeAddress, nonce: bytes, server_nonce: bytes, proof: bytes, now: float
    ) -> tuple[Session, bytes]:
        """The session and our own proof. AuthError if the caller's is wrong."""
        begun = self._forget(server_nonce)
        if begun is None or begun.nonce != nonce or now - begun.at > HANDSHAKE_S:
            raise AuthError("this handshake was not begun here, or too long ago: begin again")
        try:
            own = self._own()
            self._secret.check(proof, Claim("caller", caller, nonce, server_nonce, own.key))
            self._check_only(caller)
        except AuthError:
            self.refused += 1
            raise
        key = (caller.node_id, caller.incarnation)
        session = self._by_caller.get(key)
        if session is None:
            session = Session(
                caller, secrets.token_hex(TOKEN_BYTES), secrets.token_bytes(TOKEN_BYTES)
            )
            while len(self._by_token) >= SESSIONS_MAX:
                self.drop(next(iter(self._by_token.values())).caller)
            self._by_token[session.token] = session
            self._by_caller[key] = session
            self._admit(caller.node_id, caller.incarnation, session.read_token)
        return session, self._secret.proof(Claim("server", own, nonce, server_nonce, caller.key))

    def _check_only(self, caller: NodeAddress) -> None:
        """AuthError if another process is who `caller` says it is, as far as we know."""
        member = self._member(caller)
        if member is not None and not member.same_process(caller):
            raise AuthError(
                f"{caller.node_id} at {caller.endpoint} shows another key than "
                f"{member.node_id} at {member.endpoint}, which it says it is"
            )
        # While nobody knows which of them it is, the last one has the session: whoever came first
        # must not keep the true one out.
        session = self._by_caller.get((caller.node_id, caller.incarnation))
        if session is not None and not session.caller.same_process(caller):
            log.warning("%s at %s was another process", caller.node_id, session.caller.endpoint)
            self.drop(session.caller)

    def expel_impostors_of(self, member: NodeAddress) -> None:
        """It is in our view from now on: who came before and only said to be it, is not."""
        session = self._by_caller.get((member.node_id, member.incarnation))
        if session is not None and not session.caller.same_process(member):
            log.warning("%s at %s was another process", member.node_id, session.caller.endpoint)
            self.drop(session.caller)

    def find(self, token: str) -> Session | None:
        session = self._by_token.get(token)
        if session is not None:
            # A daemon that is refused and restarted for ever must not wear out the members'.
            self._by_token.move_to_end(token)
        return session

    def drop(self, caller: NodeAddress) -> bool:
        session = self._by_caller.pop((caller.node_id, caller.incarnation), None)
        if session is None:
            return False
        del self._by_token[session.token]
        self._expel(caller.node_id, caller.incarnation)
        return True
