"""Requests from a trace file in the Mooncake project's format.

JSON lines, plain or gzipped, one request each. Only `hash_ids` is read: one number per 512-token
block of the prompt. Equal numbers are equal blocks after equal prefixes.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path

BLOCK_TOKENS = 512


class TraceError(ValueError):
    """The file is not a trace. The text says where, and what to do."""


def read_trace(path: Path) -> Iterator[tuple[int, ...]]:
    """The blocks of each request in order. Raises TraceError, or OSError if it cannot be opened."""
    requests = 0
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as lines:
        try:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield _request(path, number, line)
                    requests += 1
        except (EOFError, zlib.error, gzip.BadGzipFile) as problem:
            raise TraceError(f"{path} is damaged ({problem}): copy it again") from problem
    if requests == 0:
        raise TraceError(f"{path} has no requests: it needs a JSON object in each line")


def _request(path: Path, number: int, line: bytes) -> tuple[int, ...]:
    try:
        entry = json.loads(line)
        blocks = entry["hash_ids"]
        if not blocks or not all(type(block) is int and block >= 0 for block in blocks):
            raise ValueError("hash_ids must be a list of block numbers")
    except (ValueError, KeyError, TypeError, RecursionError) as problem:
        raise TraceError(
            f"{path}, line {number}: not a request of the Mooncake trace format ({problem!s}): "
            "each line must be a JSON object with hash_ids"
        ) from problem
    return tuple(blocks)
