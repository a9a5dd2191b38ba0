"""Protobuf messages of peer.proto <-> plain values. ValueError names what a peer sent wrong."""

from __future__ import annotations

from collections.abc import Iterable

from peercached.directory.messages import Ack, Batch, Kind
from peercached.membership import NodeAddress
from peercached.peer.rpc.node_key import KEY_BYTES
from peercached.proto import peer_pb2 as pb

# Large enough for one bucket of a pool of hundreds of millions of pages (directory/stream.py).
MESSAGE_BYTES_MAX = 64 << 20
NAME_BYTES_MAX = 255
RAILS_MAX = 64


def address_message(address: NodeAddress) -> pb.NodeAddress:
    return pb.NodeAddress(
        node_id=address.node_id,
        incarnation=address.incarnation,
        host=address.host,
        peer_port=address.peer_port,
        data_port=address.data_port,
        pool_bytes=address.pool_bytes,
        rails=address.rails,
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
    if message.rails > RAILS_MAX:
        raise ValueError(
            f"node {message.node_id!r} says it has {message.rails} rails; {RAILS_MAX} are the limit"
        )
    return NodeAddress(
        message.node_id,
        message.incarnation,
        message.host,
        message.peer_port,
        message.data_port,
        message.pool_bytes,
        message.rails,
        key_of(message.node_id, message.key),
        message.name,
    )


def key_of(node_id: str, key: bytes) -> bytes:
    if len(key) not in (0, KEY_BYTES):
        raise ValueError(f"node {node_id!r} has a key of {len(key)} bytes, not {KEY_BYTES}")
    return key


def epoch_messages(epochs: Iterable[tuple[bytes, int]]) -> list[pb.NamespaceEpoch]:
    return [pb.NamespaceEpoch(namespace_id=i, epoch=e) for i, e in epochs]


def batch_message(batch: Batch, node_id: str, incarnation: int) -> pb.PublishBatch:
    message = pb.PublishBatch(
        sequence=batch.sequence, view_number=batch.view_number, fence=batch.fence
    )
    if batch.kind is Kind.HELLO:
        message.hello.node_id = node_id
        message.hello.incarnation = incarnation
        message.hello.stream_epoch = batch.epoch
    elif batch.kind is Kind.BUCKET:
        message.bucket.bucket = batch.bucket
        message.bucket.as_of = batch.as_of
        message.bucket.rows = batch.payload
    elif batch.kind is Kind.SYNC_DONE:
        message.sync_done.as_of = batch.as_of
    else:
        setattr(message, batch.kind.value, batch.payload)
    return message


def batch_of(message: pb.PublishBatch, epoch: int) -> Batch:
    """`epoch` is that of the stream's hello, or 0 before the hello."""
    body = message.WhichOneof("body")
    if body is None:
        raise ValueError(f"batch {message.sequence} has no body that this version knows")
    batch = Batch(Kind(body), epoch, message.sequence, message.view_number, fence=message.fence)
    if batch.kind is Kind.HELLO:
        batch.epoch = message.hello.stream_epoch
    elif batch.kind is Kind.BUCKET:
        batch.payload = message.bucket.rows
        batch.bucket, batch.as_of = message.bucket.bucket, message.bucket.as_of
    elif batch.kind is Kind.SYNC_DONE:
        batch.as_of = message.sync_done.as_of
    else:
        batch.payload = getattr(message, body)
    return batch


def ack_message(ack: Ack) -> pb.PublishAck:
    message = pb.PublishAck(
        sequence=ack.sequence,
        gap=ack.gap,
        differing=ack.differing,
        refused_full=ack.refused_full,
    )
    if ack.same is not None:
        message.same = ack.same
    return message


def ack_of(message: pb.PublishAck) -> Ack:
    same = message.same if message.HasField("same") else None
    return Ack(message.sequence, message.gap, same, message.differing, message.refused_full)
