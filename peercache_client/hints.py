"""Hints: the frame of `hint`, and its outcomes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from peercache_client import wire
from peercache_client.batch import key_frames
from peercache_client.session import Reply, Session
from peercache_client.wire import Key, Op

KEYS_MAX: Final = 4096

Envelope = Mapping[str, Any] | str | bytes


@dataclass(frozen=True)
class HintOutcome:
    """The daemon's answer to one action.

    `outcome`: accepted (done, or it waits for its turn), clipped (done for some pages), refused,
    missing (no node has the pages) or ignored (the daemon does not know the action). `why`: for
    people.
    """

    action_id: str
    action_type: str
    outcome: str
    pages: int = 0
    bytes: int = 0
    why: str = ""


def packed_envelope(envelope: Envelope) -> bytes:
    """TypeError or ValueError for an envelope that is no JSON, or is too large."""
    if isinstance(envelope, Mapping):
        packed = json.dumps(dict(envelope), separators=(",", ":")).encode()
    elif isinstance(envelope, (str, bytes)):
        packed = envelope.encode() if isinstance(envelope, str) else envelope
    else:
        raise TypeError(f"an envelope is a mapping or JSON, not {type(envelope).__name__}")
    if len(packed) > wire.ENVELOPE_BYTES_MAX:
        raise ValueError(
            f"an envelope of {len(packed)} bytes: {wire.ENVELOPE_BYTES_MAX} are the limit"
        )
    return packed


def send_hints(
    session: Session, envelope: Envelope, keys: Sequence[Key], end: float
) -> list[HintOutcome]:
    """As Client.hint."""
    packed = packed_envelope(envelope)
    wire.check_keys(keys)
    frame = next(iter(key_frames(keys[:KEYS_MAX], None)), None)
    count, body = (frame.keys, frame.body) if frame is not None else (0, ())
    size = wire.ENVELOPE_BYTES.pack(len(packed))
    reply = session.ask(Op.hint, 0, count, end, (*body, packed, size))
    if not isinstance(reply, Reply):
        return []
    return [HintOutcome(**outcome) for outcome in json.loads(reply.body)]
