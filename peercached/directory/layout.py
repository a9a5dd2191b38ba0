"""Packed digests and records, in the format of native code and the wire (docs/protocol.md).

Use only C loops here (slices of a cast memoryview): a batch of a thousand pages must cost
microseconds.
"""

from __future__ import annotations

from array import array
from hashlib import blake2b

DIGEST_BYTES = 16
ROW_BYTES = 48
BUCKETS = 256
SUMMARY_BYTES = BUCKETS * 16
ZERO_SUMMARY = bytes(SUMMARY_BYTES)
FINGERPRINT_BYTES = 16
SELF = 0  # this daemon's holder index
NO_HOLDER = 0xFFFF

_HOLDER_AT_U16 = 20  # RecordRow.holder, in units of u16
_FLAGS_AT = 42
RESIDENT = 1
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


def holders_of(rows: bytes) -> set[int]:
    """The distinct holder indices in the rows."""
    return set(memoryview(rows).cast("H")[_HOLDER_AT_U16::_ROW_U16].tolist())


def digests_of(rows: bytes) -> bytes:
    """The digest of each row, packed."""
    words = memoryview(rows).cast("Q")
    out = array("Q", bytes(len(rows) // ROW_BYTES * DIGEST_BYTES))
    out[0::2] = array("Q", words[0::6].tolist())
    out[1::2] = array("Q", words[1::6].tolist())
    return out.tobytes()


def gone_from_pool(rows: bytes) -> bytes:
    """The rows for pages no longer in the holder's pool: withdrawn, or on its disk only."""
    flags = rows[_FLAGS_AT::ROW_BYTES]
    resident = flags.count(RESIDENT)
    if resident in (0, len(flags)):
        return b"" if resident else rows
    each = (rows[at : at + ROW_BYTES] for at in range(0, len(rows), ROW_BYTES))
    return b"".join(row for row, flag in zip(each, flags, strict=True) if flag != RESIDENT)


def pack_mapping(mapping: dict[int, int]) -> bytes:
    """The mapping format of map_rows: a u16 per index up to the largest; NO_HOLDER in gaps."""
    packed = array("H", [NO_HOLDER]) * (max(mapping, default=-1) + 1)
    for source, target in mapping.items():
        packed[source] = target
    return packed.tobytes()


def fingerprint_of(summary: bytes) -> bytes:
    return blake2b(summary, digest_size=FINGERPRINT_BYTES).digest()


def differing_buckets(ours: bytes, theirs: bytes) -> bytes:
    """256 bytes, 1 where two packed summaries differ."""
    if ours == theirs:
        return bytes(BUCKETS)
    a, b = memoryview(ours), memoryview(theirs)
    return bytes(a[i : i + 16] != b[i : i + 16] for i in range(0, SUMMARY_BYTES, 16))


def bucket_counts(summary: bytes) -> list[int]:
    return memoryview(summary).cast("Q")[1::2].tolist()


def bucket_groups(mask: bytes, summary: bytes, rows_max: int) -> list[bytes]:
    """Splits a mask into masks of at most `rows_max` rows each, by the counts in `summary`. A
    larger bucket gets a mask of its own."""
    groups: list[bytes] = []
    if not any(mask):
        return groups
    group, rows = bytearray(BUCKETS), 0
    for bucket, count in enumerate(bucket_counts(summary)):
        if not mask[bucket]:
            continue
        if rows and rows + count > rows_max:
            groups.append(bytes(group))
            group, rows = bytearray(BUCKETS), 0
        group[bucket] = 1
        rows += count
    if any(group):
        groups.append(bytes(group))
    return groups
