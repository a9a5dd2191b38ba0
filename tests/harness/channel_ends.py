"""The end of an RDMA channel (docs/protocol.md, "ConnectChannel")."""

import struct

_END = struct.Struct("<IIIHBB16sB3xI")
ETHERNET = 2


def end_of(
    qpn: int = 1,
    psn: int = 1,
    rail: int = 0,
    rd_atomic: int = 1,
    gid: bytes = bytes(10) + b"\xff\xff\x7f\0\0\1",
    channel: int = 1,
) -> bytes:
    return _END.pack(rail, qpn, psn, 0, 3, rd_atomic, gid, ETHERNET, channel)


def queue_pair_of(end: bytes) -> tuple[int, int, bytes]:
    """(qpn, psn, gid)"""
    _, qpn, psn, _, _, _, gid, _, _ = _END.unpack_from(end)
    return qpn, psn, gid
