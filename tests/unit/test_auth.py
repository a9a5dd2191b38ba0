"""Sessions: who gets one, what goes with it, and that there are never too many."""

import pytest

from peercached.membership import NodeAddress
from peercached.peer import auth
from peercached.peer.auth import NONCE_BYTES, AuthError, Secret, Session, Sessions

OWN = NodeAddress("server", 1, "10.0.0.1", 1, 2)
NONCE = b"n" * NONCE_BYTES


def address(node_id: str = "caller", incarnation: int = 7, host: str = "10.0.0.2") -> NodeAddress:
    return NodeAddress(node_id, incarnation, host, 1, 2)


class Server:
    """Sessions, and the data port that they open."""

    def __init__(self) -> None:
        self.secret = Secret(b"of the cluster")
        self.admitted: dict[tuple[str, int], bytes] = {}
        self.sessions = Sessions(self.secret, lambda: OWN, self._admit, self._expel)

    def _admit(self, node_id: str, incarnation: int, token: bytes) -> None:
        self.admitted[(node_id, incarnation)] = token

    def _expel(self, node_id: str, incarnation: int) -> None:
        del self.admitted[(node_id, incarnation)]

    def shake(self, caller: NodeAddress, now: float = 0.0) -> Session:
        server_nonce = self.sessions.begin(NONCE, now)
        proof = self.secret.proof("caller", caller, NONCE, server_nonce)
        session, own_proof = self.sessions.finish(caller, NONCE, server_nonce, proof, now)
        assert self.secret.check(own_proof, "server", OWN, NONCE, server_nonce)
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
    proof = secret.proof("caller", address(), NONCE, other_nonce)
    assert secret.check(proof, "caller", address(), NONCE, other_nonce)
    assert not secret.check(proof, "server", address(), NONCE, other_nonce)
    assert not secret.check(proof, "caller", address(), other_nonce, NONCE)
    assert not secret.check(proof, "caller", address(), NONCE, NONCE)
    assert not Secret(b"of another").check(proof, "caller", address(), NONCE, other_nonce)
    for lie in (
        NodeAddress("other", 7, "10.0.0.2", 1, 2),
        NodeAddress("caller", 8, "10.0.0.2", 1, 2),
        NodeAddress("caller", 7, "10.0.0.9", 1, 2),
        NodeAddress("caller", 7, "10.0.0.2", 9, 2),
        NodeAddress("caller", 7, "10.0.0.2", 1, 9),
        NodeAddress("caller", 7, "10.0.0.2", 1, 2, 9),
    ):
        assert not secret.check(proof, "caller", lie, NONCE, other_nonce)


def test_a_wrong_proof_gets_no_session_and_is_counted() -> None:
    server = Server()
    server_nonce = server.sessions.begin(NONCE, 0.0)
    wrong = Secret(b"of another").proof("caller", address(), NONCE, server_nonce)
    with pytest.raises(AuthError, match="does not know the cluster secret"):
        server.sessions.finish(address(), NONCE, server_nonce, wrong, 0.0)
    assert server.sessions.refused == 1
    assert server.admitted == {}


def test_a_handshake_is_good_once_for_its_own_nonce_and_not_for_ever() -> None:
    server = Server()

    def finish(nonce: bytes, server_nonce: bytes, now: float) -> None:
        proof = server.secret.proof("caller", address(), nonce, server_nonce)
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
        proof = secret.proof("caller", address(), NONCE, server_nonce)
        server.sessions.finish(address(), NONCE, server_nonce, proof, 0.0)

    with pytest.raises(AuthError, match="begin again"):
        finish(begun[0])
    for server_nonce in begun[1:]:
        finish(server_nonce)


def test_who_begins_handshakes_without_end_spoils_only_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(auth, "HANDSHAKES_MAX", 8)
    monkeypatch.setattr(auth, "HANDSHAKES_PER_HOST_MAX", 4)
    server = Server()
    honest = server.sessions.begin(NONCE, 0, "10.0.0.2")
    for _ in range(20):
        server.sessions.begin(NONCE, 0, "10.6.6.6")
    proof = server.secret.proof("caller", address(), NONCE, honest)
    assert server.sessions.finish(address(), NONCE, honest, proof, 0)


def test_sessions_are_bounded_and_those_in_use_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon that is refused and restarted for ever makes a session each time."""
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
