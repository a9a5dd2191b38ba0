"""Unpacks records for tests into tuples (digest, offset, generation, check, length, holder,
flags)."""

from __future__ import annotations

import hashlib
import struct
from typing import Any

ROW = struct.Struct("<16sQQIIHB5x")
RESIDENT, WITHDRAW = 1, 2


def digest_of(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def unpack_rows(rows: bytes) -> list[tuple[Any, ...]]:
    return list(ROW.iter_unpack(rows))


def withdrawals_of(rows: bytes) -> bytes:
    return b"".join(ROW.pack(*row[:-1], WITHDRAW) for row in unpack_rows(rows))
