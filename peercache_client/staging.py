"""The copying path: pages in memory that the daemon cannot map are copied through a region."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence

from peercache_client._ipc import Slots
from peercache_client.notes import say
from peercache_client.page_names import Names
from peercache_client.region import Region
from peercache_client.status import Status
from peercache_client.wire import KEY_BYTES_MAX, Key, Op, key_bytes

Move = Callable[
    [Op, Sequence[Key], list[Region], list[int], list[int], Key | None, float, Names | None],
    list[Status],
]
Alloc = Callable[[int], Region]

_ALIGN_BYTES = 64


class Staging:
    """One region per process, created when first needed, for one batch at a time. A batch in a
    signal handler gets its own region. It would otherwise wait for the batch that it
    interrupted."""

    def __init__(self, capacity_bytes: int) -> None:
        self.capacity_bytes = capacity_bytes
        self._slots = Slots(1)
        self._idle: list[Region] = []
        self._said = False
        self._said_too_large = False
        self.pid = os.getpid()

    def takes(self, size: int) -> bool:
        """Whether a page of `size` bytes fits the region."""
        if size <= self.capacity_bytes:
            return True
        if not self._said_too_large:
            self._said_too_large = True
            say(
                logging.WARNING,
                "a page of %d bytes is larger than staging_bytes (%d), the buffer for pages in "
                "unshared memory: raise it, or use memory from Client.alloc() (said once)",
                size,
                self.capacity_bytes,
            )
        return False

    def move(
        self,
        op: Op,
        keys: Sequence[Key],
        views: list[memoryview],
        places: list[tuple[Region, int] | None],
        parent: Key | None,
        end: float,
        names: Names | None,
        move: Move,
        alloc: Alloc,
    ) -> list[Status]:
        """Moves the pages without a place through the region, in as many rounds as needed.

        Pages with a place stay in sequence with the others, so that the chain of keys is unbroken.
        Raises OSError if there is no memory for the region.
        """
        slot = self._slots.take(end)
        if slot is None:
            return [Status.deadline] * len(keys)
        if not self._said:
            self._said = True
            say(
                logging.WARNING,
                "pages in unshared memory are copied through a region of %d bytes; memory "
                "from Client.alloc() or Client.register() needs no copy (said once)",
                self.capacity_bytes,
            )
        try:
            return self._rounds(op, keys, views, places, parent, end, names, move, alloc)
        finally:
            del slot  # release now: a stored exception would keep this frame and its slot alive

    def _rounds(
        self,
        op: Op,
        keys: Sequence[Key],
        views: list[memoryview],
        places: list[tuple[Region, int] | None],
        parent: Key | None,
        end: float,
        names: Names | None,
        move: Move,
        alloc: Alloc,
    ) -> list[Status]:
        statuses = [Status.too_large] * len(keys)
        region = self._take_region(alloc)
        begin, refused = 0, False
        while begin < len(keys):
            if not _usable(region):
                # The daemon may still write into the old region, so we use a new one.
                region = alloc(self.capacity_bytes)
            chosen: list[int] = []
            regions: list[Region] = []
            offsets: list[int] = []
            staged: list[tuple[int, int]] = []  # (page, offset in the region)
            used = 0
            i = begin
            while i < len(keys):
                place = places[i]
                size = views[i].nbytes
                if place is None:
                    if not self.takes(size):
                        i += 1
                        continue  # too_large
                    if used + size > self.capacity_bytes:
                        break
                    staged.append((i, used))
                    place = (region, used)
                    used += -(-size // _ALIGN_BYTES) * _ALIGN_BYTES
                chosen.append(i)
                regions.append(place[0])
                offsets.append(place[1])
                i += 1
            if op == Op.set:
                for page, offset in staged:
                    region.view[offset : offset + views[page].nbytes] = views[page]
            if chosen:
                lengths = [views[k].nbytes for k in chosen]
                some = None if names is None else names.part(chosen)
                got = move(
                    op, [keys[k] for k in chosen], regions, offsets, lengths, parent, end, some
                )
                for k, status in zip(chosen, got, strict=True):
                    statuses[k] = status
                refused = any(statuses[page] is Status.bad_region for page, _ in staged)
                # The next round continues the chain after the last key of this one.
                parent = possible_parent(keys[chosen[-1]])
            if op == Op.get:
                for page, offset in staged:
                    if statuses[page]:
                        views[page][:] = region.view[offset : offset + views[page].nbytes]
            begin = i
        if not self._idle and not refused and _usable(region) and self.pid == os.getpid():
            self._idle.append(region)
        return statuses

    def _take_region(self, alloc: Alloc) -> Region:
        """Returns the idle region or a new one. If the batch fails, the region is dropped: an
        interrupted call may still be using it."""
        try:
            return self._idle.pop()
        except IndexError:
            return alloc(self.capacity_bytes)


def _usable(region: Region) -> bool:
    return not region.segment.quarantined and not region.segment.lost


def possible_parent(key: Key) -> Key | None:
    """None for a key that no page can have."""
    return key if 1 <= len(key_bytes(key)) <= KEY_BYTES_MAX else None
