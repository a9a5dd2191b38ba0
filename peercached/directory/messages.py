"""Messages of a record stream: batches to the owner, acknowledgements back."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """The values are the names in PublishBatch of peer.proto."""

    HELLO = "hello"  # begins a stream epoch; always number 1
    ROWS = "rows"  # records to apply
    FINGERPRINT = "fingerprint"  # of our summary; most owners match it and need no more
    SUMMARY = "summary"  # a hash and a count of our records per bucket
    BUCKET = "bucket"  # all records of one bucket
    SYNC_DONE = "sync_done"  # all differing buckets were sent


@dataclass(slots=True)
class Batch:
    kind: Kind
    epoch: int  # of the stream; only the hello carries it on the wire
    sequence: int
    view_number: int
    payload: bytes = b""
    bucket: int = 0
    as_of: int = 0
    fence: int = 0  # the sender's: the owner now rejects publish frames with a lower one
    # Not sent:
    tickets: tuple[int, ...] = ()
    sent_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Ack:
    sequence: int  # all up to here are applied; in an answer: the question's sequence
    gap: bool = False
    same: bool | None = None  # the answer to a fingerprint
    differing: bytes = b""  # the answer to a summary
    refused_full: int = 0
