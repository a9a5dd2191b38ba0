"""Pins: the frames of `pin` and `unpin`."""

from __future__ import annotations

import math
from collections.abc import Sequence

from peercache_client import wire
from peercache_client.answers import statuses_and_text
from peercache_client.batch import key_frames
from peercache_client.session import Session
from peercache_client.status import Status
from peercache_client.wire import Flag, Key, Op


def pin_pages(
    session: Session, keys: Sequence[Key], for_s: float, prefix: bool, here: bool, end: float
) -> list[Status]:
    """As Client.pin."""
    if not 0 < for_s <= wire.PIN_S_MAX:
        raise ValueError(f"for_s is {for_s}: above 0 and at most {wire.PIN_S_MAX} seconds")
    flags = (Flag.prefix if prefix else Flag.none) | (Flag.here if here else Flag.none)
    statuses: list[Status] = []
    for frame in key_frames(keys, None):
        if prefix and statuses and not statuses[-1]:
            statuses += [statuses[-1]] * frame.keys
        else:
            statuses += _ask(session, frame.keys, frame.flags | flags, frame.body, for_s, end)
    return statuses


def unpin_pages(session: Session, keys: Sequence[Key], end: float) -> list[Status]:
    """As Client.unpin."""
    statuses: list[Status] = []
    for frame in key_frames(keys, None):
        statuses += _ask(session, frame.keys, frame.flags, frame.body, 0, end)
    return statuses


def _ask(
    session: Session, count: int, flags: int, body: tuple[bytes, ...], for_s: float, end: float
) -> list[Status]:
    for_ms = wire.PIN_MS.pack(math.ceil(1000 * for_s))
    reply = session.ask(Op.pin, flags, count, end, (*body, for_ms))
    return statuses_and_text(reply, count, "pin")
