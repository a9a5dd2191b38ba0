"""Converts messages between the two ends of an RDMA channel. The data plane packs them into bytes
(native/transfer/rdma/handshake.h); peers send them as messages of peer.proto. The layouts are in
docs/protocol.md, "ConnectChannel".

`end_of`, `offer_of` and `answer_of` check a peer's values. ValueError names the invalid field.
"""

from __future__ import annotations

import struct

from peercached.peer.rpc.wire import RAILS_MAX
from peercached.proto import peer_pb2 as pb

END = struct.Struct("<IIIHBB16sB3xI")  # 40 bytes
_FIELDS = ("rail", "qpn", "psn", "lid", "mtu", "rd_atomic", "gid", "link_layer", "channel")
_ACCESS = struct.Struct("<QQQQI")  # between the holder's end and the rkeys
_GID_BYTES = 16
_CLOSED_MAX = 4096
_MULTICAST = 0xFF  # first byte of an IPv6 multicast address
_CHUNKS_MAX = 1 << 16

_ETHERNET = pb.RdmaEndpoint.ETHERNET
_INFINIBAND = pb.RdmaEndpoint.INFINIBAND


def offers_of(rails: int) -> dict[str, bytes]:
    """A peer with that many rails offers this beside TCP, for the data plane."""
    return {"rdma": struct.pack("<I", rails)} if rails else {}


def rail_of(packed: bytes) -> int:
    """The rail of a packed ChannelEnd, in its owner's numbering."""
    rail: int = END.unpack(packed)[0]
    return rail


def end_message(packed: bytes) -> pb.RdmaEndpoint:
    """The message for a packed ChannelEnd of our own data plane."""
    return pb.RdmaEndpoint(**dict(zip(_FIELDS, END.unpack(packed), strict=True)))


def end_of(message: pb.RdmaEndpoint) -> bytes:
    """Checks a peer's end and packs it."""
    _within("rail", message.rail, 0, RAILS_MAX - 1)
    _within("qpn", message.qpn, 1, (1 << 24) - 1)
    _within("psn", message.psn, 0, (1 << 24) - 1)
    _within("lid", message.lid, 0, (1 << 16) - 1)
    _within("mtu", message.mtu, 1, 5)
    _within("rd_atomic", message.rd_atomic, 1, 255)
    if len(message.gid) != _GID_BYTES:
        raise ValueError(f"an RDMA endpoint's gid has {len(message.gid)} bytes, not {_GID_BYTES}")
    if message.gid[0] == _MULTICAST:
        raise ValueError("an RDMA endpoint's gid is a multicast address")
    if message.link_layer == _ETHERNET:
        if not any(message.gid):
            raise ValueError("an RDMA endpoint on Ethernet has a gid of zeros: nobody reaches it")
    elif message.link_layer != _INFINIBAND:
        raise ValueError(f"an RDMA endpoint's link_layer is {message.link_layer}, not 1 or 2")
    return END.pack(*(getattr(message, field) for field in _FIELDS))


def _within(field: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise ValueError(f"an RDMA endpoint's {field} is {value}, not within {low}..{high}")


def offer_message(end: bytes, closed: bytes) -> pb.ConnectChannelRequest:
    """The reader's request. `end`: a packed ChannelEnd; `closed`: packed u32 channel numbers."""
    numbers = (number for (number,) in struct.iter_unpack("<I", closed))
    return pb.ConnectChannelRequest(reader=end_message(end), closed=numbers)


def offer_of(message: pb.ConnectChannelRequest) -> tuple[bytes, bytes]:
    """Checks a reader's request. Returns the packed ChannelEnd and the packed u32 numbers of
    closed channels."""
    if len(message.closed) > _CLOSED_MAX:
        raise ValueError(f"{len(message.closed)} closed channels; {_CLOSED_MAX} are the limit")
    return end_of(message.reader), struct.pack(f"<{len(message.closed)}I", *message.closed)


def answer_message(packed: bytes) -> pb.ConnectChannelReply:
    """The message for a packed ChannelAnswer of our own data plane."""
    incarnation, address, pool_bytes, chunk_bytes, count = _ACCESS.unpack_from(packed, END.size)
    return pb.ConnectChannelReply(
        holder=end_message(packed[: END.size]),
        incarnation=incarnation,
        pool_address=address,
        pool_bytes=pool_bytes,
        chunk_bytes=chunk_bytes,
        rkeys=struct.unpack_from(f"<{count}I", packed, END.size + _ACCESS.size),
    )


def answer_of(message: pb.ConnectChannelReply, incarnation: int) -> bytes:
    """Checks the answer of the holder's `incarnation` and packs it."""
    if message.incarnation != incarnation:
        raise ValueError(
            f"incarnation {message.incarnation} answered for the pool of {incarnation}"
        )
    chunks = -(-message.pool_bytes // message.chunk_bytes) if message.chunk_bytes else 0
    if not 0 < chunks <= _CHUNKS_MAX or chunks != len(message.rkeys):
        raise ValueError(
            f"a pool of {message.pool_bytes} bytes in pieces of {message.chunk_bytes} cannot have "
            f"{len(message.rkeys)} keys"
        )
    if message.pool_address + message.pool_bytes > 1 << 64:
        raise ValueError(
            f"a pool of {message.pool_bytes} bytes cannot be at {message.pool_address:#x}"
        )
    access = _ACCESS.pack(
        message.incarnation, message.pool_address, message.pool_bytes, message.chunk_bytes, chunks
    )
    return end_of(message.holder) + access + struct.pack(f"<{chunks}I", *message.rkeys)
