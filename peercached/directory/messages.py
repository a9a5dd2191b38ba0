"""What travels on a record stream: batches to the owner, acknowledgements back."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto


class Kind(Enum):
    HELLO = auto()  # begins a stream epoch; always number 1
    ROWS = auto()  # records to apply
    SUMMARY = auto()  # what we have, by bucket
    BUCKET = auto()  # one bucket, whole
    SYNC_DONE = auto()  # all differing buckets were sent


@dataclass(slots=True)
class Batch:
    kind: Kind
    epoch: int  # of the stream; on the wire only the hello carries it, the call implies it
    sequence: int
    view_number: int
    payload: bytes = b""
    bucket: int = 0
    as_of: int = 0
    # Not sent:
    tickets: tuple[int, ...] = ()
    sent_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Ack:
    sequence: int  # all up to here are applied; with `differing`: the summary's own number
    gap: bool = False
    differing: bytes = b""
    refused_full: int = 0
