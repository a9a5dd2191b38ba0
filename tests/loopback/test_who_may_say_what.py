"""The table "Who may say what" of docs/security.md: each call is sent as each caller."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import grpc
from harness.callers import stranger
from harness.channel_ends import end_of
from harness.loop_node import LoopNode, free_port, in_sync

from peercached.peer.rpc.client import PeerLink
from peercached.peer.rpc.failures import CallFailed, Refused
from peercached.proto import peer_pb2 as pb
from peercached.proto import peer_pb2_grpc

DOCS = Path(__file__).parents[2] / "docs"
ROW = re.compile(r"^\| `(\w+)` \| (\w+) \| (\w+) \| (\w+) \|", re.MULTILINE)
EPOCH = pb.NamespaceEpoch(namespace_id=b"n" * 16, epoch=1)
REFUSALS = {
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNAUTHENTICATED,
}


def table() -> dict[str, tuple[str, str, str]]:
    text = (DOCS / "security.md").read_text()
    section = text.split("## Who may say what")[1].split("\n## ")[0]
    return {call: (row[0], row[1], row[2]) for call, *row in ROW.findall(section)}


def message(call: str, node: LoopNode) -> Any:
    """A well-formed call of the caller "stranger", incarnation 5."""
    own = node.daemon.placement.own.address
    address = pb.NodeAddress(
        node_id="stranger", incarnation=5, host="127.0.0.1", peer_port=1, data_port=2
    )
    there = pb.NodeAddress(
        node_id=own.node_id,
        incarnation=own.incarnation,
        host=own.host,
        peer_port=own.peer_port,
        data_port=own.data_port,
    )
    return {
        "Heartbeat": pb.HeartbeatRequest(sender=pb.Member(address=address, state=pb.ALIVE)),
        "Probe": pb.ProbeRequest(target=there),
        "ConnectChannel": pb.ConnectChannelRequest(end=end_of()),
        "RaiseEpoch": pb.RaiseEpochRequest(epoch=EPOCH),
        "ForgetNode": pb.ForgetNodeRequest(node_id="gone"),
        "Operate": pb.OperateRequest(method="Status"),
    }.get(call) or getattr(pb, f"{call}Request")()


async def refused(link: PeerLink, call: str, request: Any) -> str:
    """ "refused" if the caller may not say it at all, whatever else may be wrong with it."""
    try:
        await link.call(call, request, timeout_s=5)
    except Refused as error:
        return "refused" if error.code in REFUSALS else "answered"
    except CallFailed:
        return "answered"
    return "answered"


def test_every_call_is_in_the_table() -> None:
    calls = {name for name in vars(peer_pb2_grpc.PeerServicer) if name[0].isupper()}
    assert table().keys() == calls
    # test_peer_limits.py sends each of them without a session.
    assert {row[0] for call, row in table().items() if call != "Handshake"} == {"refused"}


async def test_an_outsider_is_answered_what_the_table_says() -> None:
    a, b = free_port(), free_port()
    secret = b"s" * 32
    async with (
        LoopNode("a", a, [a], secret=secret) as node,
        LoopNode("b", b, [a], secret=secret) as other,
    ):
        await in_sync(node, other)
        found = {}
        rows = table()
        del rows["Handshake"]
        rows["Heartbeat"] = rows.pop("Heartbeat")  # as the last: it makes a member of the outsider
        for call, (_, expected, _) in rows.items():
            link = stranger(node, secret)
            await link.ready()
            found[call] = (await refused(link, call, message(call, node)), expected)
            await link.close()
        wrong = {call: pair for call, pair in found.items() if pair[0] != pair[1]}
        assert not wrong, "found, and what the table says"
