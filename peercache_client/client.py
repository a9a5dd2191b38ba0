"""The blocking client."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from array import array
from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from peercache_client import memory, wire
from peercache_client.batch import KeyFrame, Lengths, Place, key_frames, place_pages
from peercache_client.connection import Connection, GaveUp, Lost, Refused, Reply
from peercache_client.region import Region, Segment, make_memfd, map_shared
from peercache_client.session import Late, Session
from peercache_client.staging import Staging
from peercache_client.status import STATUS_OF_BYTE, Status
from peercache_client.wire import Flag, Key, Op

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

log = logging.getLogger("peercache_client")

DEFAULT_SOCKET_PATH: Final = "/run/peercached/peercached.sock"
DEFAULT_TIMEOUT_S: Final = 2.0
DEFAULT_STAGING_BYTES: Final = 64 << 20


class Client:
    """A worker's attachment to the daemon of its host.

    Thread safe: each thread has a connection of its own. Safe over fork: a child attaches by
    itself. Construction needs no daemon. Every call has a time-out (`timeout_s`, else the
    client's); while the daemon is away calls return misses at once, and when it is back,
    connections and regions are restored without help.

    Keys are str or bytes of 1 to 4096 bytes; those of one batch are a chain, first to last, and
    `parent` is the key just before the first. Wrong arguments raise TypeError or ValueError;
    nothing else raises after construction.
    """

    def __init__(
        self,
        socket_path: str | os.PathLike[str],
        namespace: str,
        *,
        name: str = "",
        timeout_s: float = DEFAULT_TIMEOUT_S,
        staging_bytes: int = DEFAULT_STAGING_BYTES,
    ) -> None:
        """`namespace` says what the bytes mean: model, dtype, layout, rank (docs/protocol.md).

        `name` is shown to operators. `staging_bytes` bounds the memory through which buffers
        that are not shared travel, and so the largest page that `set` and `get` can move.
        """
        if not isinstance(namespace, str):
            raise TypeError(f"namespace must be str, not {type(namespace).__name__}")
        if len(namespace.encode()) > 1024:
            raise ValueError(f"namespace has {len(namespace.encode())} bytes: at most 1024")
        if staging_bytes < 4096:
            raise ValueError(f"staging_bytes is {staging_bytes}: at least 4096")
        self._timeout_s = _checked_timeout(timeout_s)
        shown = (name or f"python {os.getpid()}").encode()[:128].decode(errors="ignore").encode()
        self._session_now = Session(os.fspath(socket_path), namespace.encode(), shown)
        self._sessions = {self._session_now.pid: self._session_now}
        self._regions_lock = threading.Lock()
        self._regions: list[Region] = []
        self._staging = Staging(staging_bytes)
        self._complained: set[int] = set()

    # --- regions ---------------------------------------------------------------------------

    def alloc(self, size: int) -> Region:
        """A new region of `size` bytes of zeros; `region.view` are its bytes."""
        if not isinstance(size, int):
            raise TypeError(f"size must be int, not {type(size).__name__}")
        if size <= 0:
            raise ValueError(f"size is {size}: at least 1")
        return self._register_file(make_memfd(size, "peercache-region"))

    def register(self, source: int | ReadableBuffer) -> Region:
        """Shares existing memory: a memfd's number, an mmap, or any buffer backed by a memfd.

        The region is the whole file for a number, and exactly the buffer otherwise. ValueError
        if the memory is not shared memory; the text says what to do.

        The number may be a dma-buf's, memory of a GPU: pages of peers with RDMA are got straight
        into it, with header checks only; everything else is refused page by page. Where daemon
        or devices cannot use it at all, the log says why and its pages are `bad_region`.
        """
        if isinstance(source, int):
            return self._register_file(os.dup(source))
        view = memory.byte_view(source)
        return self._register_view(view, memory.address_of(view))

    def register_memory(self, address: int, size: int) -> Region:
        """As `register`, for memory known by its address. It must stay mapped."""
        if address <= 0 or size <= 0:
            raise ValueError(f"no memory: {size} bytes at {address:#x}")
        return self._register_view(memory.view_at(address, size), address)

    def locate(self, address: int, size: int) -> tuple[Region, int] | None:
        """The registered region that holds these bytes, and the offset in it."""
        for region in self._regions:
            if region.segment.of_device:
                continue
            offset = address - region.address
            if offset >= 0 and offset + size <= region.size:
                return region, offset
        return None

    def _register_file(self, fd: int) -> Region:
        segment = Segment(fd)
        if segment.size_bytes == 0:
            raise ValueError(f"file descriptor {fd} is an empty file: give it a size first")
        if segment.of_device:
            return self._add_region(segment, 0, None, 0)
        view = map_shared(fd, segment.size_bytes)
        return self._add_region(segment, 0, view, memory.address_of(view))

    def _register_view(self, view: memoryview, address: int) -> Region:
        if view.nbytes == 0:
            raise ValueError("an empty buffer cannot be registered")
        backing = memory.find_backing(address, view.nbytes)
        return self._add_region(Segment(backing.fd), backing.offset, view, address)

    def _add_region(
        self, segment: Segment, start: int, view: memoryview | None, address: int
    ) -> Region:
        with self._regions_lock:
            for known in self._regions:
                if known.segment.identity == segment.identity:
                    segment = known.segment
                    break
            end = start + (view.nbytes if view is not None else segment.size_bytes)
            if end > segment.size_bytes:
                raise ValueError(
                    f"the buffer ends at byte {end} of a file that was "
                    f"registered with {segment.size_bytes}: close its regions before it grows"
                )
            region = Region(segment, start, view, address, self._forget_region)
            segment.regions += 1
            self._regions.append(region)
        if segment.regions == 1:
            self._session().add(segment)
        return region

    def _forget_region(self, region: Region) -> None:
        with self._regions_lock:
            self._regions.remove(region)
            region.segment.regions -= 1
            last = region.segment.regions == 0
        if last:
            self._session().remove(region.segment)

    # --- pages in regions ------------------------------------------------------------------

    def batch_set(
        self,
        keys: Sequence[Key],
        region: Region | Sequence[Region],
        offsets: Sequence[int],
        lengths: Lengths,
        *,
        parent: Key | None = None,
        timeout_s: float | None = None,
    ) -> list[Status]:
        """Stores the page at offsets[i], lengths[i] of the region under keys[i]."""
        place = place_pages(keys, region, offsets, lengths)
        return self._move(Op.set, keys, place, parent, self._end(timeout_s))

    def batch_get(
        self,
        keys: Sequence[Key],
        region: Region | Sequence[Region],
        offsets: Sequence[int],
        lengths: Lengths,
        *,
        parent: Key | None = None,
        timeout_s: float | None = None,
    ) -> list[Status]:
        """Brings the pages to their places. What is not `ok` may hold anything.

        When this returns nothing more is written there, whatever became of the pages.
        """
        place = place_pages(keys, region, offsets, lengths)
        return self._move(Op.get, keys, place, parent, self._end(timeout_s))

    # --- pages in any buffers --------------------------------------------------------------

    def batch_set_buffers(
        self,
        keys: Sequence[Key],
        buffers: Sequence[ReadableBuffer],
        *,
        parent: Key | None = None,
        timeout_s: float | None = None,
    ) -> list[Status]:
        """Stores buffers[i] under keys[i]: without a copy from registered memory."""
        views = [memory.byte_view(buffer) for buffer in buffers]
        return self._move_buffers(Op.set, keys, views, parent, timeout_s)

    def batch_get_buffers(
        self,
        keys: Sequence[Key],
        buffers: Sequence[WriteableBuffer],
        *,
        parent: Key | None = None,
        timeout_s: float | None = None,
    ) -> list[Status]:
        """Fills buffers[i] with the page keys[i], which must have exactly its length."""
        views = [memory.byte_view(buffer) for buffer in buffers]
        for i, view in enumerate(views):
            if view.readonly:
                raise ValueError(f"buffers[{i}] is read-only: a page cannot be put there")
        return self._move_buffers(Op.get, keys, views, parent, timeout_s)

    def set(
        self,
        key: Key,
        data: ReadableBuffer,
        *,
        parent: Key | None = None,
        timeout_s: float | None = None,
    ) -> Status:
        return self.batch_set_buffers([key], [data], parent=parent, timeout_s=timeout_s)[0]

    def get(self, key: Key, length: int, *, timeout_s: float | None = None) -> bytes | None:
        """The page's bytes; None for a miss, also if it has another length."""
        if not 1 <= length <= wire.LENGTH_BYTES_MAX:
            raise ValueError(f"length is {length}: 1 to {wire.LENGTH_BYTES_MAX}")
        if length > self._staging.capacity_bytes:
            return None
        page = bytearray(length)
        status = self.batch_get_buffers([key], [page], timeout_s=timeout_s)[0]
        return bytes(page) if status else None

    # --- keys ------------------------------------------------------------------------------

    def batch_exists(
        self,
        keys: Sequence[Key],
        *,
        parent: Key | None = None,
        timeout_s: float | None = None,
        hold_s: float = 0.0,
    ) -> int:
        """How many keys are present from the first one on, without a hole.

        With `hold_s` their holders also keep them from eviction for so long, 30 seconds at most;
        a page that cannot be kept counts as not present.
        """
        end = self._end(timeout_s)
        present = 0
        for frame in key_frames(keys, parent):
            count = frame.keys
            flags, body = _holding(frame, hold_s)
            reply = self._exchange(Op.exists, flags, count, end, body)
            if not isinstance(reply, Reply):
                return present
            present += reply.value
            if reply.value < count:
                break
        return present

    def contains(
        self,
        keys: Sequence[Key],
        *,
        parent: Key | None = None,
        timeout_s: float | None = None,
        hold_s: float = 0.0,
    ) -> list[bool]:
        """For each key by itself whether it is present; `hold_s` as of `batch_exists`."""
        end = self._end(timeout_s)
        found: list[bool] = []
        for frame in key_frames(keys, parent):
            flags, body = _holding(frame, hold_s)
            reply = self._exchange(Op.exists, flags | Flag.bitmap, frame.keys, end, body)
            if isinstance(reply, Reply) and len(reply.body) == frame.keys:
                found += map(bool, reply.body)
            else:
                found += [False] * frame.keys
        return found

    def remove(self, keys: Sequence[Key], *, timeout_s: float | None = None) -> list[Status]:
        """Takes pages away in the whole cluster. `ok`: was there; `absent`: was nowhere.

        `removing`: some node that may have it could not be asked yet (the log and `peercachectl
        status` say which). The removal goes on by itself; until it is complete the page may be
        found there, and nobody can set it. `error`: they are gone, but that could not be written
        down in state_dir, and a restart may bring them back.
        """
        end = self._end(timeout_s)
        statuses: list[Status] = []
        for frame in key_frames(keys, None):
            reply = self._exchange(Op.remove, frame.flags, frame.keys, end, frame.body)
            if isinstance(reply, Reply) and len(reply.body) > frame.keys:
                log.warning("remove: %s", bytes(reply.body[frame.keys :]).decode(errors="replace"))
                reply = Reply(reply.value, reply.body[: frame.keys])
            statuses += _statuses(reply, frame.keys)
        return statuses

    # --- everything else -------------------------------------------------------------------

    def clear(self, *, timeout_s: float | None = None) -> bool:
        """Empties this client's namespace in the whole cluster.

        False if a part could not be reached (the log says which) or there is no daemon.
        """
        reply = self._exchange(Op.clear, 0, 0, self._end(timeout_s))
        if not isinstance(reply, Reply):
            return False
        if reply.value:
            log.warning("clear: %s", bytes(reply.body).decode(errors="replace"))
        return reply.value == 0

    def stats(self, *, timeout_s: float | None = None) -> dict[str, Any]:
        """{"connected", "last_error", "reconnects", "regions", "daemon": what it says or None}"""
        reply = self._exchange(Op.stats, 0, 0, self._end(timeout_s))
        session = self._session()
        daemon: Any = None
        if isinstance(reply, Reply):
            try:
                daemon = json.loads(bytes(reply.body))
            except ValueError as error:
                log.warning("the daemon's statistics cannot be read: %s", error)
        return {
            "connected": isinstance(reply, Reply),
            "last_error": session.last_error,
            "reconnects": session.reconnects,
            "regions": len(self._regions),
            "daemon": daemon,
        }

    def ping(self, *, timeout_s: float | None = None) -> bool:
        """Whether the daemon answers."""
        reply = self._exchange(Op.ping, 0, 0, self._end(timeout_s))
        return isinstance(reply, Reply)

    @property
    def last_error(self) -> str:
        """Why there is no daemon, as far as known; empty while there is one."""
        return self._session().last_error

    def close(self) -> None:
        """Detaches, after the calls in progress. Later calls return misses."""
        self._session().close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # --- inside ----------------------------------------------------------------------------

    def _session(self) -> Session:
        session = self._session_now
        pid = os.getpid()
        if session.pid != pid:
            # A forked child. setdefault: of two threads that come here first, one wins.
            session = self._sessions.setdefault(pid, session.after_fork())
            self._session_now = session
        return session

    def _end(self, timeout_s: float | None) -> float:
        if timeout_s is None:
            return time.monotonic() + self._timeout_s
        return time.monotonic() + _checked_timeout(timeout_s)

    def _exchange(
        self,
        op: int,
        flags: int,
        count: int,
        end: float,
        body: tuple[bytes, ...] | Callable[[Connection, float], tuple[bytes, ...]] = (),
        segments: Sequence[Segment] = (),
    ) -> Reply | Status:
        """One request. A Status instead of its reply is what became of all its pages.

        A `body` that names regions is made for the connection that it goes over, by `end`.
        """
        session = self._session()
        for attempt in (1, 2):
            try:
                connection = session.connection(end)
            except Late:
                return Status.deadline
            if connection is None:
                return Status.no_daemon
            try:
                parts = body if isinstance(body, tuple) else body(connection, end)
                # Connecting and registering have taken their part.
                timeout_s = end - time.monotonic()
                if timeout_s <= 0:
                    return Status.deadline
                return connection.ask(op, flags, count, timeout_s, parts)
            except Late:
                return Status.deadline
            except Lost:
                # The daemon was started anew since the last call, perhaps: asking twice is
                # harmless, every request can be repeated.
                if attempt == 2:
                    return Status.no_daemon
            except GaveUp as error:
                session.daemon_hangs(error)
                return Status.deadline
            except Refused as refused:
                self._complain(refused)
                return Status.error
            finally:
                if connection.stuck:
                    _quarantine(segments)
        raise AssertionError("unreachable")

    def _complain(self, refused: Refused) -> None:
        if refused.code not in self._complained:
            self._complained.add(refused.code)
            log.warning("the daemon refuses a request: %s (said once)", refused)

    def _move(
        self, op: Op, keys: Sequence[Key], place: Place, parent: Key | None, end: float
    ) -> list[Status]:
        statuses: list[Status] = []
        for frame in key_frames(keys, parent):
            part = place
            if frame.keys < len(keys):
                part = place.part(frame.begin, frame.begin + frame.keys)
            reply = self._exchange(
                op, frame.flags, frame.keys, end, partial(self._body, frame, part), part.segments
            )
            statuses += _mark_quarantined(_statuses(reply, frame.keys), part.segments)
        return statuses

    def _body(
        self, frame: KeyFrame, place: Place, connection: Connection, end: float
    ) -> tuple[bytes, ...]:
        regions = self._region_column(connection, place.segments, frame.keys, end)
        return frame.lengths, regions, place.offsets, place.lengths, frame.parent, frame.joined

    def _region_column(
        self, connection: Connection, segments: list[Segment], count: int, end: float
    ) -> bytes:
        known = connection.region_ids
        ids = []
        for segment in segments:
            region_id = known.get(segment)
            if region_id is None:
                region_id = self._session().region_id(connection, segment, end)
            ids.append(0 if segment.quarantined else region_id)
        column = array("I", ids)
        return (column * count if len(ids) == 1 else column).tobytes()

    def _move_buffers(
        self,
        op: Op,
        keys: Sequence[Key],
        views: list[memoryview],
        parent: Key | None,
        timeout_s: float | None,
    ) -> list[Status]:
        end = self._end(timeout_s)
        if len(views) != len(keys):
            raise ValueError(f"{len(keys)} keys and {len(views)} buffers: one for each key")
        wire.pack_parent(parent)
        places: list[tuple[Region, int] | None] = []
        for i, view in enumerate(views):
            if view.nbytes == 0 or view.nbytes > wire.LENGTH_BYTES_MAX:
                raise ValueError(
                    f"buffers[{i}] has {view.nbytes} bytes: 1 to {wire.LENGTH_BYTES_MAX}"
                )
            places.append(self.locate(memory.address_of(view), view.nbytes))
        if not views:
            return []
        if all(places):
            regions = [place[0] for place in places if place is not None]
            offsets = [place[1] for place in places if place is not None]
            lengths = [view.nbytes for view in views]
            return self._move(op, keys, place_pages(keys, regions, offsets, lengths), parent, end)
        return self._staging.move(
            op, keys, views, places, parent, end, self._move_placed, self.alloc
        )

    def _move_placed(
        self,
        op: Op,
        keys: Sequence[Key],
        regions: list[Region],
        offsets: list[int],
        lengths: list[int],
        parent: Key | None,
        end: float,
    ) -> list[Status]:
        return self._move(op, keys, place_pages(keys, regions, offsets, lengths), parent, end)


def _checked_timeout(timeout_s: float) -> float:
    if not 0 < timeout_s <= 3600:
        raise ValueError(f"timeout_s is {timeout_s}: above 0 and at most 3600 seconds")
    return float(timeout_s)


def _holding(frame: KeyFrame, hold_s: float) -> tuple[int, tuple[bytes, ...]]:
    """Flags and body of an exists that asks to keep what is present."""
    if hold_s <= 0:
        return frame.flags, frame.body
    hold_ms = min(int(hold_s * 1000) + 1, wire.HOLD_MS_MAX)
    return frame.flags | Flag.hold, (*frame.body, wire.HOLD_MS.pack(hold_ms))


def _statuses(reply: Reply | Status, count: int) -> list[Status]:
    if not isinstance(reply, Reply):
        return [reply] * count
    body = reply.body
    if len(body) != count:
        return [Status.error] * count
    if reply.value == count:
        return [Status.ok] * count
    return [STATUS_OF_BYTE[byte] for byte in body]


def _mark_quarantined(statuses: list[Status], segments: list[Segment]) -> list[Status]:
    if any(segment.quarantined for segment in segments):
        one_for_all = len(segments) == 1
        for i in range(len(statuses)):
            if segments[0 if one_for_all else i].quarantined:
                statuses[i] = Status.region_lost
    return statuses


def _quarantine(segments: Sequence[Segment]) -> None:
    for segment in segments:
        if not segment.quarantined:
            segment.quarantined = True
            log.error(
                "the daemon hangs while writing into a region of %d bytes: it may still write "
                "there, so the region is not used any more; do not reuse its memory",
                segment.size_bytes,
            )
