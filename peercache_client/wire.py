"""The frames of docs/protocol.md, "IPC": layouts."""

from __future__ import annotations

import struct
import sys
from array import array
from enum import IntEnum, IntFlag
from typing import Final

Key = str | bytes

if sys.byteorder != "little" or array("I").itemsize != 4 or array("Q").itemsize != 8:
    raise ImportError("peercache_client needs a little-endian machine with 4-byte ints")

PROTOCOL_VERSION: Final = 1
PAGES_MAX: Final = 65536
BODY_BYTES_MAX: Final = 64 << 20
KEY_BYTES_MAX: Final = 4096
LENGTH_BYTES_MAX: Final = (1 << 32) - 1
TOKEN_BYTES: Final = 16
REPLY_BIT: Final = 0x8000

REQUEST: Final = struct.Struct("<IHHIIII")  # body, op, flags, request id, count, deadline, 0
REPLY: Final = struct.Struct("<IHHIIII")  # body, op, error, request id, count, value, 0
HELLO: Final = struct.Struct("<II16sII")  # version, 0, token, namespace bytes, name bytes
HELLO_REPLY: Final = struct.Struct("<II16sQIIII")  # version, text bytes, token, incarnation, ...
REGION_BYTES: Final = struct.Struct("<Q")
HOLD_MS_MAX: Final = 30_000
KEY_BYTES: Final = struct.Struct("<I")
HOLD_MS: Final = struct.Struct("<I")  # behind the keys

GATE_PAGE_BYTES: Final = 4096
GATE_FENCE_WORD: Final = 0  # u32 index in the gate page
GATE_WRITERS_WORD: Final = 16


class Op(IntEnum):
    hello = 1
    ping = 2
    register = 3
    unregister = 4
    set = 5
    get = 6
    exists = 7
    remove = 8
    clear = 9
    stats = 10


class Flag(IntFlag):
    none = 0
    parent = 1
    bitmap = 2
    hold = 4


class ErrorCode(IntEnum):
    bad_frame = 1
    bad_version = 2
    not_attached = 3
    no_attachment = 4
    bad_value = 5
    limit = 6
    unknown_op = 7
    failed = 8
    forbidden = 9


# After these the daemon closes the connection.
CLOSING_ERRORS: Final = frozenset(
    {
        ErrorCode.bad_frame,
        ErrorCode.bad_version,
        ErrorCode.not_attached,
        ErrorCode.no_attachment,
        ErrorCode.forbidden,
    }
)


def key_bytes(key: Key) -> bytes:
    if isinstance(key, str):
        return key.encode()
    if isinstance(key, bytes):
        return key
    raise TypeError(f"a key must be str or bytes, not {type(key).__name__}: {key!r:.80}")


def pack_parent(parent: Key | None) -> bytes:
    """The parent as it stands in a body; nothing for None. ValueError for an impossible one."""
    if parent is None:
        return b""
    encoded = key_bytes(parent)
    if not 1 <= len(encoded) <= KEY_BYTES_MAX:
        raise ValueError(f"parent has {len(encoded)} bytes: a key has 1 to {KEY_BYTES_MAX}")
    return KEY_BYTES.pack(len(encoded)) + encoded
