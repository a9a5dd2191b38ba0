"""What travels on a record stream: batches to the owner, acknowledgements back."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto


class Kind(Enum):
    HELLO = auto()  # begins a stream epoch; always number 1
    ROWS = auto()  # records to apply
    FINGERPRINT = auto()  # of the summary, which for most owners is all that they need
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
    fence: int = 0  # when it was sent: the owner takes no publish frame with a lower one any more
    # Not sent:
    tickets: tuple[int, ...] = ()
    sent_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Ack:
    sequence: int  # all up to here are applied; with an answer: the question's own number
    gap: bool = False
    same: bool | None = None  # the answer to a fingerprint
    differing: bytes = b""  # the answer to a summary
    refused_full: int = 0
