"""The shard's table alone: memory per record, inserts, lookups, and removal of a node."""

import os
import time
from dataclasses import dataclass

from peercached import _native

_BATCH_ROWS_MAX = 1_000_000
_LOOKUP_BATCH = 128
_LOOKUPS_MAX = 2000


@dataclass
class DirectoryFigures:
    entries: int
    bytes_total: int
    insert_ms_per_million: float
    lookup_ns: float
    drop_ms_per_million_held: float


def rows_of_random_pages(count: int) -> tuple[bytes, bytes]:
    """(digests, RecordRows) of random pages, packed."""
    digests = os.urandom(16 * count)
    tail = (
        (64 * 4096).to_bytes(8, "little")  # offset
        + (1).to_bytes(8, "little")  # generation
        + (7).to_bytes(4, "little")  # check
        + (131072).to_bytes(4, "little")  # length
        + b"\xff\xff\x01"  # holder (ignored), resident
        + bytes(5)
    )
    packed = bytearray(48 * count)
    for column in range(16):
        packed[column::48] = digests[column::16]
    for column, value in enumerate(tail):
        packed[16 + column :: 48] = bytes([value]) * count
    return digests, bytes(packed)


def measure(entries: int) -> DirectoryFigures:
    table = _native.ShardTable(entries * 2)
    batch_rows = min(entries, _BATCH_ROWS_MAX)
    per_million = 1e6 / batch_rows
    inserts: list[float] = []
    digests = b""
    for holder in range(1, entries // batch_rows + 1):
        table.add_holder(holder)
        digests, packed = rows_of_random_pages(batch_rows)
        begin = time.perf_counter()
        table.apply(holder, packed)
        inserts.append(time.perf_counter() - begin)
    stats = table.stats()

    step = 16 * _LOOKUP_BATCH
    asked = digests[: _LOOKUPS_MAX * step]
    batches = [asked[at : at + step] for at in range(0, len(asked), step)]
    begin = time.perf_counter()
    for batch in batches:
        table.lookup(batch)
    lookup_s = time.perf_counter() - begin

    begin = time.perf_counter()
    table.drop_holder(1)
    drop_s = time.perf_counter() - begin
    inserts.sort()
    return DirectoryFigures(
        stats["entries"],
        stats["bytes"],
        inserts[len(inserts) // 2] * 1e3 * per_million,
        lookup_s / (len(asked) // 16) * 1e9,
        drop_s * 1e3 * per_million,
    )
