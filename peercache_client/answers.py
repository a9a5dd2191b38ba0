"""The statuses of pages, from the daemon's answers."""

from __future__ import annotations

import logging

from peercache_client.batch import Place
from peercache_client.notes import say
from peercache_client.session import Reply
from peercache_client.status import STATUS_OF_BYTE, Status


def statuses_of(reply: Reply | Status, count: int) -> list[Status]:
    if not isinstance(reply, Reply):
        return [reply] * count
    body = reply.body
    if len(body) != count:
        return [Status.error] * count
    if reply.value == count:
        return [Status.ok] * count
    return [STATUS_OF_BYTE[byte] for byte in body]


def statuses_and_text(reply: Reply | Status, count: int, done: str) -> list[Status]:
    """As `statuses_of`. The log gets the text that may follow the statuses."""
    if isinstance(reply, Reply) and len(reply.body) > count:
        say(logging.WARNING, "%s: %s", done, reply.body[count:].decode(errors="replace"))
        reply = Reply(reply.value, reply.body[:count])
    return statuses_of(reply, count)


def mark_quarantined(statuses: list[Status], place: Place) -> list[Status]:
    """Changes the statuses of pages if the daemon may still write their memory."""
    quarantined = {segment for segment in set(place.segments) if segment.quarantined}
    if quarantined:
        for i, segments in enumerate(place.of_pages(len(statuses))):
            if not quarantined.isdisjoint(segments):
                statuses[i] = Status.region_lost
    return statuses
