"""Sessions: who gets one, what it permits, and the limits on their number."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from peercached.membership import NodeAddress
from peercached.peer.rpc import auth
from peercached.peer.rpc.auth import (
    NONCE_BYTES,
    PROTOCOL_OLDEST,
    PROTOCOL_VERSION,
    AuthError,
    Claim,
    OtherProtocol,
    Secret,
    Session,
    Sessions,
    agreed_protocol,
)
from peercached.peer.rpc.node_key import NodeKey

OWN = NodeAddress("server", 1, "10.0.0.1", 1, 2)
NONCE = b"n" * NONCE_BYTES


def address(node_id: str = "caller", incarnation: int = 7, host: str = "10.0.0.2") -> NodeAddress:
    return NodeAddress(node_id, incarnation, host, 1, 2)


def keyed(key: NodeKey, **more: Any) -> NodeAddress:
    return replace(address(**more), key=key.public)


def holds(secret: Secret, proof: bytes, claim: Claim) -> bool:
    try:
        secret.check(proof, claim)
    except AuthError:
        return False
    return True


class Server:
    """Sessions, and the data port that they grant access to."""

    def __init__(self) -> None:
        self.secret = Secret(b"of the cluster")
        self.admitted: dict[tuple[str, int], bytes] = {}
        self.members: list[NodeAddress] = []
        placement = SimpleNamespace(own=SimpleNamespace(address=OWN), find=self._find)
        self.sessions = Sessions(self.secret, cast(Any, self), cast(Any, placement))

    def admit_reader(self, node_id: str, incarnation: int, token: bytes) -> None:
        self.admitted[(node_id, incarnation)] = token

    def expel_reader(self, node_id: str, incarnation: int) -> None:
        del self.admitted[(node_id, incarnation)]

    def _find(self, *name: object) -> Any:
        found = (m for m in self.members if (m.node_id, m.incarnation) == name)
        return next((SimpleNamespace(address=member) for member in found), None)

    def shake(self, caller: NodeAddress, now: float = 0.0, secret: Secret | None = None) -> Session:
        server_nonce = self.sessions.begin(NONCE, now)
        proof = (secret or self.secret).proof(Claim("caller", caller, NONCE, server_nonce))
        session, own_proof = self.sessions.finish(caller, NONCE, server_nonce, proof, now)
        self.secret.check(own_proof, Claim("server", OWN, NONCE, server_nonce, caller.key))
        return session


def test_a_session_opens_the_data_port_and_its_end_shuts_it() -> None:
    server = Server()
    session = server.shake(address())
    assert server.sessions.find(session.token) is session
    assert server.admitted == {("caller", 7): session.read_token}
    assert server.sessions.drop(address())
    assert server.sessions.find(session.token) is None
    assert server.admitted == {}


def test_another_process_with_the_node_id_takes_nothing_from_the_first() -> None:
    server = Server()
    first = server.shake(address())
    twin = server.shake(address(incarnation=8, host="10.0.0.3"))
    assert server.sessions.find(first.token) is first
    assert server.admitted[("caller", 7)] == first.read_token != twin.read_token
    server.sessions.drop(twin.caller)
    assert server.admitted == {("caller", 7): first.read_token}


def test_a_proof_holds_for_one_role_address_and_pair_of_nonces_only() -> None:
    secret = Secret(b"of the cluster")
    other_nonce = b"o" * NONCE_BYTES
    proof = secret.proof(Claim("caller", address(), NONCE, other_nonce))
    assert holds(secret, proof, Claim("caller", address(), NONCE, other_nonce))
    assert not holds(secret, proof, Claim("server", address(), NONCE, other_nonce))
    assert not holds(secret, proof, Claim("caller", address(), other_nonce, NONCE))
    assert not holds(secret, proof, Claim("caller", address(), NONCE, NONCE))
    assert not holds(Secret(b"of another"), proof, Claim("caller", address(), NONCE, other_nonce))
    for lie in (
        NodeAddress("other", 7, "10.0.0.2", 1, 2),
        NodeAddress("caller", 8, "10.0.0.2", 1, 2),
        NodeAddress("caller", 7, "10.0.0.9", 1, 2),
        NodeAddress("caller", 7, "10.0.0.2", 9, 2),
        NodeAddress("caller", 7, "10.0.0.2", 1, 9),
        NodeAddress("caller", 7, "10.0.0.2", 1, 2, 9),
        NodeAddress("caller", 7, "10.0.0.2", 1, 2, name="other"),
    ):
        assert not holds(secret, proof, Claim("caller", lie, NONCE, other_nonce))


def test_a_wrong_proof_gets_no_session_and_is_counted() -> None:
    server = Server()
    server_nonce = server.sessions.begin(NONCE, 0.0, "10.0.0.2")
    wrong = Secret(b"of another").proof(Claim("caller", address(), NONCE, server_nonce))
    with pytest.raises(AuthError, match="does not know the cluster secret"):
        server.sessions.finish(address(), NONCE, server_nonce, wrong, 0.0)
    assert server.sessions.refused == 1
    assert server.sessions.refused_last.startswith("10.0.0.2: caller at 10.0.0.2:1 does not know")
    assert server.admitted == {}


def test_a_node_without_a_secret_is_told_so_at_both_ends() -> None:
    claim = Claim("caller", address(), NONCE, b"o" * NONCE_BYTES)
    none, some = Secret(b""), Secret(b"of the cluster")
    with pytest.raises(AuthError, match="has no cluster secret: give it the cluster_secret_file"):
        some.check(none.proof(claim), claim)
    with pytest.raises(AuthError, match="has a cluster secret, and the other side has none"):
        none.check(some.proof(claim), claim)


def test_handshake_works_once_for_its_nonce_before_it_expires() -> None:
    server = Server()

    def finish(nonce: bytes, server_nonce: bytes, now: float) -> None:
        proof = server.secret.proof(Claim("caller", address(), nonce, server_nonce))
        server.sessions.finish(address(), nonce, server_nonce, proof, now)

    server_nonce = server.sessions.begin(NONCE, 0.0)
    finish(NONCE, server_nonce, auth.HANDSHAKE_S)
    with pytest.raises(AuthError, match="begin again"):
        finish(NONCE, server_nonce, auth.HANDSHAKE_S)  # replayed
    with pytest.raises(AuthError, match="begin again"):
        finish(NONCE, server.sessions.begin(NONCE, 0.0), auth.HANDSHAKE_S + 0.1)
    with pytest.raises(AuthError, match="begin again"):
        finish(b"o" * NONCE_BYTES, server.sessions.begin(NONCE, 0.0), 0.0)
    with pytest.raises(AuthError, match="begin again"):
        finish(NONCE, b"never given out!", 0.0)


def test_a_nonce_has_its_length() -> None:
    with pytest.raises(ValueError, match="15 bytes, not 16"):
        Server().sessions.begin(b"n" * 15, 0.0)


def test_handshakes_that_nobody_finishes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth, "HANDSHAKES_MAX", 4)
    server = Server()
    begun = [server.sessions.begin(NONCE, 0.0) for _ in range(5)]
    secret = server.secret

    def finish(server_nonce: bytes) -> None:
        proof = secret.proof(Claim("caller", address(), NONCE, server_nonce))
        server.sessions.finish(address(), NONCE, server_nonce, proof, 0.0)

    with pytest.raises(AuthError, match="begin again"):
        finish(begun[0])
    for server_nonce in begun[1:]:
        finish(server_nonce)


def test_handshake_flood_from_one_host_spoils_no_other_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(auth, "HANDSHAKES_MAX", 8)
    monkeypatch.setattr(auth, "HANDSHAKES_PER_HOST_MAX", 4)
    server = Server()
    honest = server.sessions.begin(NONCE, 0, "10.0.0.2")
    for _ in range(20):
        server.sessions.begin(NONCE, 0, "10.6.6.6")
    proof = server.secret.proof(Claim("caller", address(), NONCE, honest))
    assert server.sessions.finish(address(), NONCE, honest, proof, 0)


def test_session_limit_keeps_sessions_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """A restarting daemon that is refused each time still makes a session each time."""
    monkeypatch.setattr(auth, "SESSIONS_MAX", 8)
    server = Server()
    member = server.shake(address("member"))
    tokens = []
    for incarnation in range(1, 40):
        tokens.append(server.shake(address("twin", incarnation)).token)
        assert server.sessions.find(member.token) is member
        assert len(server.admitted) <= 8
    assert server.admitted[("member", 7)] == member.read_token
    assert [token for token in tokens if server.sessions.find(token)] == tokens[-7:]


def test_secret_alone_cannot_impersonate_a_node_with_a_key() -> None:
    server, key = Server(), NodeKey.make()
    mine = Secret(server.secret.value, key)
    assert server.shake(keyed(key), secret=mine)
    for other in (None, NodeKey.make()):
        with pytest.raises(AuthError, match="does not have the key that it shows"):
            server.shake(keyed(key, incarnation=8), secret=Secret(server.secret.value, other))
    assert server.sessions.refused == 2


@pytest.mark.parametrize("key", [NodeKey.make(), None], ids=["another key", "no key"])
def test_impostor_with_another_key_does_not_displace_a_member(key: NodeKey | None) -> None:
    server, own = Server(), NodeKey.make()
    first = server.shake(keyed(own), secret=Secret(server.secret.value, own))
    server.members = [keyed(own)]
    impostor = address() if key is None else keyed(key)
    with pytest.raises(AuthError, match="shows another key than caller at"):
        server.shake(impostor, secret=Secret(server.secret.value, key))
    assert server.sessions.find(first.token) is first
    assert server.admitted == {("caller", 7): first.read_token}


def test_squatter_cannot_keep_a_nonmember_node_out() -> None:
    server, own, other = Server(), NodeKey.make(), NodeKey.make()
    squatter = server.shake(keyed(other), secret=Secret(server.secret.value, other))
    true = server.shake(keyed(own), secret=Secret(server.secret.value, own))
    assert server.sessions.find(squatter.token) is None
    assert server.admitted == {("caller", 7): true.read_token}


def test_squatters_session_ends_when_the_true_node_becomes_a_member() -> None:
    server, own, other = Server(), NodeKey.make(), NodeKey.make()
    squatter = server.shake(keyed(other), secret=Secret(server.secret.value, other))
    secret = Secret(server.secret.value, own)
    server.members = [keyed(own)]
    server.sessions.expel_impostors_of(keyed(own))
    assert server.sessions.find(squatter.token) is None
    assert server.admitted == {}
    assert server.shake(keyed(own), secret=secret)


def test_called_peer_cannot_relay_the_callers_proof() -> None:
    """The called peer obtains a third node's nonce, and asks the caller for a proof over it."""
    third, own, between = Server(), NodeKey.make(), NodeKey.make()
    secret = Secret(third.secret.value, own)
    server_nonce = third.sessions.begin(NONCE, 0.0)
    proof = secret.proof(Claim("caller", keyed(own), NONCE, server_nonce, between.public))
    with pytest.raises(AuthError):
        third.sessions.finish(keyed(own), NONCE, server_nonce, proof, 0.0)


@pytest.mark.parametrize(
    ("newest", "oldest", "agreed"),
    [
        (PROTOCOL_VERSION, PROTOCOL_OLDEST, PROTOCOL_VERSION),
        (PROTOCOL_VERSION + 1, PROTOCOL_VERSION, PROTOCOL_VERSION),
        (PROTOCOL_VERSION + 1, PROTOCOL_VERSION + 1, None),
        (PROTOCOL_VERSION + 1, 0, None),
        (PROTOCOL_OLDEST - 1, PROTOCOL_OLDEST - 2, None),
        (0, 0, None),
    ],
)
def test_two_nodes_speak_the_newest_protocol_that_both_know(
    newest: int, oldest: int, agreed: int | None
) -> None:
    if agreed is not None:
        assert agreed_protocol(newest, oldest) == agreed
        return
    with pytest.raises(OtherProtocol, match=f"protocol {newest}, the other one"):
        agreed_protocol(newest, oldest)
