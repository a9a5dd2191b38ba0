"""Protobuf messages of peer.proto <-> plain values. ValueError names what a peer sent wrong."""

from __future__ import annotations

import re
from collections.abc import Iterable

from peercached.membership import NodeAddress, Transports
from peercached.peer.rpc.node_key import KEY_BYTES
from peercached.proto import peer_pb2 as pb

# Large enough for what a node missed while it was away (peer/removals/catch_up.py).
MESSAGE_BYTES_MAX = 64 << 20
NAME_BYTES_MAX = 255
TRANSPORTS_MAX = 4
TRANSPORT_BYTES_MAX = 256  # that it tells its peers
_TRANSPORT_NAME = re.compile("[a-z0-9_]{1,32}")


def address_message(address: NodeAddress) -> pb.NodeAddress:
    return pb.NodeAddress(
        node_id=address.node_id,
        incarnation=address.incarnation,
        host=address.host,
        peer_port=address.peer_port,
        data_port=address.data_port,
        pool_bytes=address.pool_bytes,
        transports=[pb.Transport(name=name, told=told) for name, told in address.transports],
        key=address.key,
        name=address.name,
    )


def check_name(what: str, name: str) -> None:
    """ValueError if the name is empty, too long or not printable."""
    if not 0 < len(name.encode()) <= NAME_BYTES_MAX:
        raise ValueError(f"{what} {name[:64]!r}: 1 to {NAME_BYTES_MAX} bytes are valid")
    if not name.isprintable():
        raise ValueError(f"{what} {name[:64]!r} has characters that cannot be shown")


def address_of(message: pb.NodeAddress) -> NodeAddress:
    check_name("node id", message.node_id)
    check_name("host", message.host)
    if message.name:
        check_name("name", message.name)
    if message.incarnation == 0:
        raise ValueError(f"node {message.node_id!r} has incarnation 0, which is never used")
    for port in (message.peer_port, message.data_port):
        if not 0 < port < 65536:
            raise ValueError(f"port {port} of node {message.node_id!r} is not within 1..65535")
    return NodeAddress(
        message.node_id,
        message.incarnation,
        message.host,
        message.peer_port,
        message.data_port,
        message.pool_bytes,
        _transports_of(message),
        key_of(message.node_id, message.key),
        message.name,
    )


def _transports_of(message: pb.NodeAddress) -> Transports:
    whose = f"the transports of node {message.node_id!r}"
    if len(message.transports) > TRANSPORTS_MAX:
        raise ValueError(f"{whose} are {len(message.transports)}; {TRANSPORTS_MAX} are the limit")
    transports = tuple((one.name, one.told) for one in message.transports)
    for name, told in transports:
        if not _TRANSPORT_NAME.fullmatch(name) or name == "tcp":
            raise ValueError(
                f"{whose} have {name[:64]!r}; 1 to 32 of a-z, 0-9 and _ are valid, without tcp"
            )
        if len(told) > TRANSPORT_BYTES_MAX:
            raise ValueError(
                f"{whose} have {name} with {len(told)} bytes; {TRANSPORT_BYTES_MAX} are the limit"
            )
    names = [name for name, _ in transports]
    if names != sorted(set(names)):
        raise ValueError(f"{whose} do not ascend: {', '.join(names)}")
    return transports


def key_of(node_id: str, key: bytes) -> bytes:
    if len(key) not in (0, KEY_BYTES):
        raise ValueError(f"node {node_id!r} has a key of {len(key)} bytes, not {KEY_BYTES}")
    return key


def epoch_messages(epochs: Iterable[tuple[bytes, int]]) -> list[pb.NamespaceEpoch]:
    return [pb.NamespaceEpoch(namespace_id=i, epoch=e) for i, e in epochs]
