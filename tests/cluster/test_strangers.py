"""Strangers at every port and socket of real daemons. They are refused, counted in /metrics and
logged, while readers miss nothing."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from harness.background import Background
from harness.certificates import Certificates
from harness.channel_ends import end_of
from harness.clock import seconds
from harness.cluster import Cluster, Daemon
from harness.fixtures import FAST, MakeCluster, cluster_maker
from harness.links import link_from
from harness.pages import Pages, keys_of
from harness.scrape import samples
from harness.secret_file import secret_file
from harness.waiting import eventually

from peercached.membership import NodeAddress
from peercached.peer.rpc.auth import TOKEN_BYTES, AuthError, Secret
from peercached.peer.rpc.client import PeerLink
from peercached.peer.rpc.failures import Refused
from peercached.peer.rpc.tls import Tls
from peercached.proto import peer_pb2 as pb

KEYS = keys_of("beside strangers", 16)
SECRET = b"of this cluster, and of no other"
# The end of a queue pair, as a reader sends it.
OFFER = pb.ConnectChannelRequest(end=end_of())


@contextmanager
def reading(reader: Pages) -> Iterator[None]:
    """Reads KEYS over and over in the background. Every read must hit."""

    def read() -> None:
        assert all(reader.get(KEYS))

    with Background(read) as background:
        background.wait_rounds(1)
        yield
        background.wait_rounds(3)


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One shared cluster: no test may harm it."""
    secret = secret_file(tmp_path_factory.mktemp("site"), SECRET)
    with ExitStack() as stack:
        make = cluster_maker(stack, {**FAST, "member-ttl-s": 10}, 60.0)
        made = make(2, cluster_secret_file=secret)
        assert all(stack.enter_context(Pages(made[0].socket_path)).set(KEYS))
        yield made


@pytest.fixture
def pair(nodes: Cluster) -> Iterator[Cluster]:
    """The two daemons, while b reads a's pages the whole time."""
    with reading(nodes[1].attach(timeout_s=20.0)):
        yield nodes
    eventually(lambda: nodes[0].connected_members() == nodes[1].connected_members() == ["a", "b"])


@contextmanager
def refusals(daemon: Daemon, count: int, door: str, reason: str) -> Iterator[None]:
    """Waits for at least `count` more refusals. A peer that learned of a view late may add some."""

    def counted() -> float:
        return samples(daemon)("refused_total", door=door, reason=reason)

    before = counted()
    yield
    eventually(lambda: counted() - before >= count)


def call(daemon: Daemon, work: Callable[[PeerLink], Any], secret: bytes, tls: Any = None) -> Any:
    """Runs `work` with the link of a caller that claims to be node c on 127.0.0.3."""
    own = NodeAddress("c", 7, "127.0.0.3", 1, 2)

    async def with_link() -> Any:
        link = link_from(own, daemon.address, Secret(secret), tls, 5.0)
        try:
            return await work(link)
        finally:
            await link.close()

    return asyncio.run(with_link())


def connect_showing(metadata: tuple[tuple[str, str], ...]) -> Callable[[PeerLink], Any]:
    return lambda link: link.stub.ConnectChannel(OFFER, metadata=metadata)


def has_said(daemon: Daemon, sentence: str) -> bool:
    return sentence in daemon.log_text()


# --- the meta port, whose sessions give access to the others ---------------------------------


def test_a_foreign_secret_gets_no_session(pair: Cluster) -> None:
    with (
        refusals(pair[0], 1, "meta_port", "no_secret"),
        pytest.raises(AuthError, match="does not know the cluster secret"),
    ):
        call(pair[0], lambda link: link.ready(), b"of another cluster altogether...")
    assert "refused a handshake from 127.0.0.1: c at 127.0.0.3:1" in pair[0].log_text()


def test_without_a_session_there_is_no_rdma_channel(pair: Cluster) -> None:
    """ConnectChannel is the RDMA handshake. Its answer has the memory keys of the pool."""
    for metadata in ((), (("peercached-session", "00" * TOKEN_BYTES),)):
        with (
            refusals(pair[0], 1, "meta_port", "no_session"),
            pytest.raises(grpc.aio.AioRpcError) as error,
        ):
            call(pair[0], connect_showing(metadata), b"")
        assert error.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert "refused a call from 127.0.0.1: it has no session" in pair[0].log_text()
    assert pair[0].status()["transport"]["channels_accepted"] == 0


def test_large_messages_of_strangers_take_no_memory(pair: Cluster) -> None:
    """gRPC has one limit for the size of messages. Members need it large."""

    def held_kib() -> int:
        status = Path(f"/proc/{pair[0].pid}/status").read_text()
        return int(status.partition("RssAnon:")[2].split()[0])

    async def send(method: str) -> grpc.StatusCode:
        options = [("grpc.max_send_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
        channel: Any  # grpc's stubs want a serializer
        async with grpc.aio.insecure_channel(pair[0].address, options=options) as channel:
            call = channel.unary_unary(f"/peercached.peer.v1.Peer/{method}")(bytes(60 << 20))
            code: grpc.StatusCode = await call.code()
            return code

    async def send_all() -> set[grpc.StatusCode]:
        return {*await asyncio.gather(*map(send, ["Handshake", "Promote"] * 8))}

    peak: list[int] = []
    before = held_kib()
    with Background(lambda: peak.append(held_kib()), pause_s=0.02):
        refused = asyncio.run(send_all())
    assert refused == {grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.UNAUTHENTICATED}
    assert max(peak) - before < 100 << 10


def test_nonmember_with_the_secret_gets_no_rdma_channel(pair: Cluster) -> None:
    with pytest.raises(Refused, match="is not in view") as error:
        call(pair[0], lambda link: link.call("ConnectChannel", OFFER), SECRET)
    assert error.value.code is grpc.StatusCode.FAILED_PRECONDITION
    assert samples(pair[0])("channel_offers_refused_total") == 1
    assert "refused an RDMA channel to c: c (incarnation 7) is not in view" in pair[0].log_text()


def test_the_certificate_of_one_node_opens_nothing_to_another(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    site = Certificates(tmp_path / "site")
    nodes = make_cluster(2, each=[site.options(name) for name in "ab"])
    assert all(nodes[0].attach().set(KEYS))
    mine = site.options("d")
    tls = Tls.load(mine["tls_ca"], mine["tls_cert"], mine["tls_key"], "d", "127.0.0.4")
    with (
        reading(nodes[1].attach(timeout_s=20.0)),
        refusals(nodes[0], 1, "meta_port", "wrong_certificate"),
        pytest.raises(AuthError, match=r"not for host 127\.0\.0\.3"),
    ):
        call(nodes[0], lambda link: link.ready(), b"", tls)
    assert "refused a handshake from 127.0.0.1: c at 127.0.0.3:1" in nodes[0].log_text()
    assert "certificate does not match its node id or host" in nodes[0].sentences()


# --- the data port ----------------------------------------------------------------------------

_FRAME = struct.Struct("<IHHII")
_MAGIC, _HELLO, _REFUSED, _CHALLENGE = 0x54504350, 1, 3, 14
_UNAUTHORISED, _WRONG_INCARNATION, _BAD_HELLO = 1, 2, 4


def hello(node_id: bytes, own: int, holder: int, proof: bytes) -> bytes:
    body = struct.pack("<QQ32sII", own, holder, proof, len(node_id), 0) + node_id
    return _FRAME.pack(_MAGIC, 2, _HELLO, len(body), 0) + body


def reason_of_refusal(daemon: Daemon, said: bytes) -> int:
    with socket.create_connection((daemon.host, daemon.data_port), timeout=seconds(10)) as one:
        one.sendall(said)
        answer = b""
        while piece := one.recv(4096):
            answer += piece
    _, _, kind, body_bytes, _ = _FRAME.unpack_from(answer)
    assert kind == _CHALLENGE
    refusal = answer[_FRAME.size + body_bytes :]
    _, _, kind, _, _ = _FRAME.unpack_from(refusal)
    assert kind == _REFUSED
    (reason,) = struct.unpack_from("<H", refusal, _FRAME.size)
    return int(reason)


def test_the_data_port_opens_to_no_token_but_its_own(pair: Cluster) -> None:
    holder, member = (int(one.status()["node"]["incarnation"], 16) for one in pair.daemons)
    token = os.urandom(TOKEN_BYTES)
    at = pair[0]
    bad_before = at.status()["tcp_server"]["bad_hellos"]
    with refusals(at, 3, "data_port", "no_token"):
        assert reason_of_refusal(at, hello(b"c", 7, holder, token)) == _UNAUTHORISED
        assert reason_of_refusal(at, hello(b"b", member, holder, token)) == _UNAUTHORISED
        nothing = hello(b"b", member, holder, bytes(TOKEN_BYTES))
        assert reason_of_refusal(at, nothing) == _UNAUTHORISED
    assert reason_of_refusal(at, hello(b"b", member, holder + 1, token)) == _WRONG_INCARNATION
    assert reason_of_refusal(at, b"GET / HTTP/1.1\r\n") == _BAD_HELLO
    assert at.status()["tcp_server"]["bad_hellos"] == bad_before + 5
    eventually(lambda: "refused a connection to data_port from 127.0.0.1: " in at.log_text())


# --- slow connections -------------------------------------------------------------------------


def dribble(address: Any, said: bytes, stack: ExitStack) -> Callable[[], bool]:
    """Opens a connection. Each call of the result sends one byte and tells whether the server has
    closed it."""
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    one = stack.enter_context(socket.socket(family))
    one.settimeout(0.1)
    one.connect(address)
    left = list(said)

    def ended() -> bool:
        try:
            one.sendall(bytes([left.pop(0)]) if len(left) > 1 else b"")
            while one.recv(4096):
                pass
        except TimeoutError:
            return False
        except OSError:
            pass
        return True

    return ended


def test_a_slow_loris_is_ended_at_every_door(pair: Cluster) -> None:
    at = pair[0]
    metrics_host, _, metrics_port = at.metrics_address().partition(":")
    worker_hello = struct.pack("<IHHIIII", 200, 1, 0, 1, 0, 1000, 0) + bytes(200)
    doors: list[tuple[Any, bytes]] = [
        ((at.host, at.meta_port), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(500)),
        ((at.host, at.data_port), hello(b"c" * 200, 7, 7, bytes(TOKEN_BYTES))),
        (str(at.socket_path), worker_hello),
        ((metrics_host, int(metrics_port)), b"GET /metrics HTTP/1.1\r\nHost: " + b"x" * 500),
    ]
    cut_before = samples(at)("metrics_cut_total")
    with (
        refusals(at, 2, "data_port", "late_hello"),
        refusals(at, 2, "socket", "late_hello"),
        refusals(at, 2, "meta_port", "no_call"),
        ExitStack() as stack,
    ):
        open_ = [dribble(address, said, stack) for address, said in doors * 2]
        # Each check also sends the next byte.
        eventually(lambda: sum(ended() for ended in open_) == len(open_), 30)
    assert samples(at)("metrics_cut_total") == cut_before + 2
    for sentence in (
        "closed a connection to data_port from 127.0.0.1: no complete hello",
        "sent no HELLO",
        "closed the metrics connection from 127.0.0.1: it was too slow",
    ):
        eventually(partial(has_said, at, sentence), 10)


def test_a_flood_of_the_metrics_port_keeps_no_scraper_out(pair: Cluster) -> None:
    at = pair[0]
    host, _, port = at.metrics_address().partition(":")
    with ExitStack() as stack:
        for _ in range(200):
            stack.enter_context(socket.create_connection((host, int(port)), timeout=seconds(5)))
        assert samples(at)("metrics_displaced_total") >= 200 - 64
    assert "closed a slow or idle connection to the metrics port" in at.log_text()


# --- workers ----------------------------------------------------------------------------------

_AS_GROUP = """
import os, socket, sys
group = int(sys.argv[2])
os.setgroups([group] if sys.argv[3] == "beside" else [])
os.setgid(65534 if sys.argv[3] == "beside" else group)
os.setuid(65534)
one = socket.socket(socket.AF_UNIX)
one.connect(sys.argv[1])
one.settimeout(float(sys.argv[4]))
try:
    sys.stdout.buffer.write(one.recv(4096))
except TimeoutError:
    sys.stdout.write("waits for a hello")
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be in another group")
def test_a_worker_of_another_group_is_refused_and_its_own_are_not(
    make_cluster: MakeCluster,
) -> None:
    nodes = make_cluster(1, socket_mode="0666", worker_groups="54321")
    nodes.folder.chmod(0o755)

    def answer(group: int, how: str) -> bytes:
        path = str(nodes[0].socket_path)
        return subprocess.run(
            [sys.executable, "-c", _AS_GROUP, path, str(group), how, str(seconds(1))],
            capture_output=True,
            timeout=seconds(20),
            check=True,
        ).stdout

    with refusals(nodes[0], 2, "socket", "wrong_user"):
        for how in ("as its own", "beside"):
            assert answer(54321, how) == b"waits for a hello"
            assert b"of user 65534" in answer(12345, how)
    eventually(lambda: "is neither in worker_users nor in worker_groups" in nodes[0].log_text())


def test_a_page_beyond_its_namespaces_quota_is_refused_counted_and_logged(
    make_cluster: MakeCluster,
) -> None:
    nodes = make_cluster(1, pool_size="32MiB", namespace_quotas="greedy=0.125")
    modest = nodes[0].attach(namespace="modest")
    assert all(modest.set(KEYS))
    greedy = nodes[0].attach(namespace="greedy", page_bytes=8 << 20, room_pages=2)
    assert not any(greedy.set(keys_of("far too large", 2)))
    told = samples(nodes[0])
    (found,) = nodes[0].status()["quotas"]
    assert told("namespace_quota_refused_total", namespace_id=found["id"]) == 2
    eventually(lambda: "refused 2 pages of namespace 'greedy'" in nodes[0].log_text(), 15)
    assert modest.has(KEYS)
