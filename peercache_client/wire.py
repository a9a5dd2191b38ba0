"""The constants and key encoding of the IPC frames (docs/protocol.md, "IPC")."""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Mapping, Sequence, Set
from enum import IntEnum, IntFlag
from typing import Final

Key = str | bytes

if sys.byteorder != "little" or array("I").itemsize != 4 or array("Q").itemsize != 8:
    raise ImportError("peercache_client needs a little-endian machine with 4-byte ints")

PAGES_MAX: Final = 65536
KEY_BYTES_MAX: Final = 4096
LENGTH_BYTES_MAX: Final = (1 << 32) - 1
PAGE_NUMBER_MAX: Final = (1 << 32) - 1

HOLD_MS_MAX: Final = 30_000
KEY_BYTES: Final = struct.Struct("<I")
HOLD_MS: Final = struct.Struct("<I")  # follows the keys
WAIT_MS_MAX: Final = 30_000
PIN_S_MAX: Final = 3600
PIN_MS: Final = struct.Struct("<I")  # follows the keys; 0: the pins end
FORECAST_NEWS: Final = struct.Struct("<IIQQ")  # last of all
ENVELOPE_BYTES: Final = struct.Struct("<I")  # follows the keys and the envelope of hints
ENVELOPE_BYTES_MAX: Final = 256 << 10
PAGE: Final = struct.Struct("<HH")  # then tokens and keys of a page
WAIT: Final = struct.Struct("<II")  # then ms to wait, and for how many leading keys
WAIT_AGAIN: Final = 1 << 31  # of these: statistics of hits count only what came since


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
    pin = 11
    register_device = 12
    hint = 13


class Flag(IntFlag):
    none = 0
    parent = 1
    bitmap = 2
    hold = 4
    page = 8
    lengths = 16
    prefix = 64
    here = 128
    layout = 256
    stages = 512
    wait = 1024
    names = 2048
    forecast = 4096
    cold = 8192


def check_keys(keys: Sequence[Key]) -> None:
    """TypeError for a single key or an unordered collection."""
    if type(keys) is list:
        return  # fast path for the usual type
    if isinstance(keys, (str, bytes, bytearray, Set, Mapping)) or not hasattr(keys, "__getitem__"):
        raise TypeError(f"keys must be a sequence of keys, not one {type(keys).__name__}")


def key_bytes(key: Key) -> bytes:
    if isinstance(key, str):
        return key.encode()
    if isinstance(key, bytes):
        return key
    raise TypeError(f"a key must be str or bytes, not {type(key).__name__}: {key!r:.80}")


def pack_parent(parent: Key | None) -> bytes:
    """Encodes the parent for a frame body; None gives no bytes. ValueError for an invalid
    length."""
    if parent is None:
        return b""
    encoded = key_bytes(parent)
    if not 1 <= len(encoded) <= KEY_BYTES_MAX:
        raise ValueError(f"parent has {len(encoded)} bytes: a key has 1 to {KEY_BYTES_MAX}")
    return KEY_BYTES.pack(len(encoded)) + encoded
