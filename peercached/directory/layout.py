"""Packed digests and records, in the format of native code and the wire (docs/protocol.md).

Use only C loops here (slices of a cast memoryview): a batch of a thousand pages must cost
microseconds.
"""

from __future__ import annotations

from array import array

DIGEST_BYTES = 16
ROW_BYTES = 48
REMOVED_BYTES = 24  # a digest and the mark of its removal
SELF = 0  # this daemon's holder index

RESIDENT = 1
_HOLDER_AT_U16 = 20  # RecordRow.holder, in units of u16
_ROW_U16 = ROW_BYTES // 2


def check_packed(value: bytes, stride: int, what: str) -> None:
    """Raises ValueError unless `value` is a whole number of items."""
    if len(value) % stride:
        raise ValueError(f"{what}: {len(value)} bytes is not a multiple of {stride}")


def check_digests(packed: bytes, most: int) -> None:
    """Raises ValueError unless these are packed digests, at most so many."""
    check_packed(packed, DIGEST_BYTES, "digests")
    if len(packed) > most * DIGEST_BYTES:
        raise ValueError(f"{len(packed) // DIGEST_BYTES} digests at once; {most} are the limit")


def holder_of(row: bytes) -> int:
    """The row's holder index."""
    return int.from_bytes(row[40:42], "little")


def length_of(row: bytes) -> int:
    """The page's length in bytes."""
    return int.from_bytes(row[36:40], "little")


def is_resident(row: bytes) -> bool:
    """Whether the page is in its holder's pool, not only on its disk."""
    return bool(row[42] & RESIDENT)


def mark_of(removed: bytes) -> int:
    """The mark of the removal of a removed page."""
    return int.from_bytes(removed[DIGEST_BYTES:REMOVED_BYTES], "little")


def of_holder(rows: bytes, index: int) -> bytes:
    """The rows with this holder index."""
    words = array("H", rows)
    words[_HOLDER_AT_U16::_ROW_U16] = array("H", [index]) * (len(rows) // ROW_BYTES)
    return words.tobytes()


def digests_of(rows: bytes) -> bytes:
    """The digest of each row, packed."""
    words = memoryview(rows).cast("Q")
    out = array("Q", bytes(len(rows) // ROW_BYTES * DIGEST_BYTES))
    out[0::2] = array("Q", words[0::6].tolist())
    out[1::2] = array("Q", words[1::6].tolist())
    return out.tobytes()
