"""The blocking client."""

from __future__ import annotations

import json
import logging
import os
import time
from array import array
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from peercache_client import _ipc, memory, spans, wire
from peercache_client._ipc import Cancel, Segment, Segments
from peercache_client.answers import mark_quarantined, statuses_and_text, statuses_of
from peercache_client.batch import (
    Lengths,
    Place,
    exists_request,
    key_frames,
    overlapping,
    overlapping_places,
    place_in_layouts,
    place_pages,
)
from peercache_client.device import DeviceMemory, Layout
from peercache_client.forecast import Forecast, Judged, forecast_loads
from peercache_client.hints import Envelope, HintOutcome, send_hints
from peercache_client.names import encoded_name
from peercache_client.not_copied import NotCopied
from peercache_client.notes import say
from peercache_client.packed_keys import PackedKeys
from peercache_client.page_names import Names, PageHash
from peercache_client.pins import pin_pages, unpin_pages
from peercache_client.region import Region, RegionIndex
from peercache_client.session import SILENCE_TIMEOUT_S, Reply, Session, timed
from peercache_client.socket_path import existing_socket_path
from peercache_client.staging import Staging
from peercache_client.status import Status
from peercache_client.wire import Flag, Key, Op

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

DEFAULT_SOCKET_PATH: Final = "/run/peercached/peercached.sock"
DEFAULT_TIMEOUT_S: Final = 2.0
DEFAULT_STAGING_BYTES: Final = 64 << 20

# Longest wait for the daemon when a region is added or closed.
_REGION_TIMEOUT_S: Final = 1.0
_DEVICE_TIMEOUT_S: Final = 10.0  # the first one opens the GPU in the daemon


class Client(NotCopied):
    """One worker's connection to the daemon on its host.

    Thread safe. Signal handlers, finalisers and forked children may use it too; each forked child
    connects on its own (docs/client.md). Construction works without a daemon. Every call has a
    timeout: its `timeout_s`, or else the client's. While the daemon is down, calls return misses at
    once. When it is back, the client restores connections and regions by itself.

    Keys are str or bytes of 1 to 4096 bytes; other lengths give `bad_key`. The keys of one batch
    form a chain, in order, and `parent` is the key before the first. Sizes and offsets are in
    bytes, times in seconds. Wrong arguments raise TypeError or ValueError. `alloc` and `register`
    may also raise OSError. Nothing else raises after construction.
    """

    def __init__(
        self,
        socket_path: str | os.PathLike[str] | None = None,
        namespace: str = "default",
        *,
        name: str = "",
        timeout_s: float = DEFAULT_TIMEOUT_S,
        staging_bytes: int = DEFAULT_STAGING_BYTES,
        silence_timeout_s: float | None = SILENCE_TIMEOUT_S,
    ) -> None:
        """`socket_path`: by default that of this user's daemon, else of the system's.

        `namespace` identifies the meaning of the bytes: model, dtype, layout, rank
        (docs/protocol.md).

        Operators see `name`. `staging_bytes` limits the memory that copies unshared buffers, and so
        the largest page that `set` and `get` can move.

        `silence_timeout_s`: a daemon that hangs in the middle of a write continues it when it wakes
        up. A get that timed out waits this long for the write to end. After that its pages are
        `region_lost`, and their memory may change while the region is `quarantined`. With None the
        get waits without limit.
        """
        path = os.fsencode(existing_socket_path(os.environ) if socket_path is None else socket_path)
        if b"\0" in path:
            raise ValueError(f"socket_path {path!r} has a zero byte")
        if staging_bytes < 4096:
            raise ValueError(f"staging_bytes is {staging_bytes}: at least 4096")
        self._timeout_s = _checked_timeout(timeout_s)
        if silence_timeout_s is not None and not 0 <= silence_timeout_s <= 3600:
            raise ValueError(
                f"silence_timeout_s is {silence_timeout_s}: 0 to 3600 seconds, or None"
            )
        self._silence_s = silence_timeout_s
        shown = encoded_name("name", name or f"python {os.getpid()}", 1 << 20)[:128]
        shown = shown.decode(errors="ignore").encode()
        self._session_here = Session(path, encoded_name("namespace", namespace, 1024), shown)
        self._staging_here = Staging(staging_bytes)
        self._segments = Segments()
        self._regions: dict[Region, None] = {}

    # --- regions ---------------------------------------------------------------------------

    def alloc(self, size: int) -> Region:
        """Allocates a zeroed region of `size` bytes. Its bytes are `region.view`. OSError."""
        if not isinstance(size, int):
            raise TypeError(f"size must be int, not {type(size).__name__}")
        if not 1 <= size < 1 << 62:
            raise ValueError(f"size is {size}: at least 1, and no more than memory has room for")
        return self._register_file(Segment.create(size, "peercache-region"), self._regions)

    def register(self, source: int | ReadableBuffer) -> Region:
        """Shares existing memory: a memfd's number, an mmap, or any buffer backed by a memfd.

        A number registers the whole file, a buffer exactly its bytes. Raises ValueError if the
        memory is not shared, and the text says what to do. Raises OSError if the memory cannot be
        mapped.

        The number may be that of a dma-buf (GPU memory). RDMA peers write pages directly into it,
        with header checks only; the daemon refuses every other transfer page by page. If the daemon
        or the devices cannot use it at all, the log says why, and its pages are `bad_region`.
        """
        if isinstance(source, int):
            if not 0 <= source < 1 << 31:
                raise ValueError(f"no file descriptor has the number {source}")
            return self._register_file(Segment.duplicate(source), self._regions)
        view = memory.byte_view(source)
        return self._register_view(view, _ipc.address_of(view))

    def register_memory(self, address: int, size: int) -> Region:
        """As `register`, for memory given by its address. The memory must stay mapped."""
        if address <= 0 or size <= 0 or address + size > 1 << 63:
            raise ValueError(f"no memory: {size} bytes at {address:#x}")
        return self._register_view(_ipc.view_at(address, size), address)

    def locate(self, address: int, size: int) -> tuple[Region, int] | None:
        """The registered region that contains these bytes, and their offset in it, or None."""
        return RegionIndex(list(self._regions)).find(address, size)

    def _register_file(
        self, segment: Segment, table: dict[Region, None], end: float | None = None
    ) -> Region:
        if segment.size_bytes == 0:
            raise ValueError("the file descriptor is of an empty file: give it a size first")
        if segment.of_device:
            return self._add_region(segment, 0, None, 0, table)
        view = memoryview(segment.map())
        return self._add_region(segment, 0, view, _ipc.address_of(view), table, end)

    def _register_view(self, view: memoryview, address: int) -> Region:
        if view.nbytes == 0:
            raise ValueError("an empty buffer cannot be registered")
        backing = memory.find_backing(address, view.nbytes)
        return self._add_region(backing.segment, backing.offset, view, address, self._regions)

    def _add_region(
        self,
        segment: Segment,
        start: int,
        view: memoryview | None,
        address: int,
        table: dict[Region, None],
        end_s: float | None = None,
    ) -> Region:
        hold = self._segments.hold(segment)
        size_bytes = hold.segment.size_bytes
        end = start + (view.nbytes if view is not None else size_bytes)
        if end > size_bytes:
            raise ValueError(
                f"the buffer ends at byte {end} of a file that was "
                f"registered with {size_bytes}: close its regions before it grows"
            )
        region = Region(hold, start, view, address, table, self._sweep)
        # Ask now, so that the log reports at once if the daemon refuses the region.
        if end_s is None:
            end_s = time.monotonic() + min(self._timeout_s, _REGION_TIMEOUT_S)
        self._session().ask(Op.ping, 0, 0, end_s, segments=(hold.segment,))
        table[region] = None
        return region

    def _sweep(self) -> None:
        self._session().sweep(time.monotonic() + _REGION_TIMEOUT_S)

    # --- pages in regions ------------------------------------------------------------------

    @timed(Op.set)
    def batch_set(
        self,
        keys: Sequence[Key],
        region: Region | Sequence[Region],
        offsets: Sequence[int],
        lengths: Lengths,
        *,
        parent: Key | None = None,
        timeout_s: float | None = None,
        hashes: Sequence[PageHash] | None = None,
        block_tokens: int = 0,
    ) -> list[Status]:
        """Stores lengths[i] bytes at offsets[i] of the region under keys[i]. Returns one Status per
        key. `region` and `lengths` are one for all pages, or one per page.

        `hashes`: the hash of each page's block, for events of pages (page_names.py), and
        `block_tokens`: the tokens of a block."""
        place = place_pages(keys, region, offsets, lengths)
        names = Names.of(hashes, len(keys), block_tokens)
        end = self._end(timeout_s)
        return self._move(self._session(), Op.set, keys, place, parent, end, names=names)

    @timed(Op.get)
    def batch_get(
        self,
        keys: Sequence[Key],
        region: Region | Sequence[Region],
        offsets: Sequence[int],
        lengths: Lengths,
        *,
        parent: Key | None = None,
        timeout_s: float | None = None,
        give_up_s: float | None = None,
        traceparent: str | None = None,
    ) -> list[Status]:
        """Reads each page into its place. Returns one Status per key; a page that is not `ok` may
        hold any bytes.

        When this returns, nothing writes there any more, except into pages that are `region_lost`.

        `give_up_s`: pages that have not come by then are `deadline`, as with a shorter `timeout_s`.
        But a daemon that answers later than this, and in `timeout_s`, does not count as away.

        `traceparent`: the request that this get is part of, as in W3C Trace Context, for the
        daemon's spans (docs/operations.md). By default the current span of OpenTelemetry.
        """
        place = place_pages(keys, region, offsets, lengths)
        session, end = self._session(), self._end(timeout_s)
        move = partial(
            self._move, session, Op.get, keys, place, parent, end, answer_by=_answer_by(give_up_s)
        )
        return spans.within("peercache get", traceparent, move)

    # --- pages in memory of devices -------------------------------------------------------

    def register_device(self, memory: DeviceMemory) -> Region:
        """Shares an allocation on a GPU, which the daemon copies pages from and to. OSError.

        The daemon needs `gpu` in its configuration. If it cannot use the memory, the log says why,
        and its pages are `bad_region`. If the GPU fails, they are `region_lost`. Restart the daemon
        then, and register the memory anew.
        """
        end = time.monotonic() + _DEVICE_TIMEOUT_S
        return self._add_region(memory.segment(), 0, None, 0, self._regions, end)

    @timed(Op.set)
    def batch_set_device(
        self,
        keys: Sequence[Key],
        layout: Layout | Sequence[Layout],
        numbers: Sequence[int],
        *,
        parent: Key | None = None,
        timeout_s: float | None = None,
        hashes: Sequence[PageHash] | None = None,
        block_tokens: int = 0,
    ) -> list[Status]:
        """Stores page numbers[i] of the layout under keys[i], as one page in the layout's order.
        Returns one Status per key. `layout`: one for all pages, or one for each key.

        Copies of a GPU cannot be stopped, so the call may end a little later than its timeout.
        `hashes`, `block_tokens`: see `batch_set`."""
        place = place_in_layouts(keys, layout, numbers)
        names = Names.of(hashes, len(keys), block_tokens)
        end = self._end(timeout_s)
        return self._move(self._session(), Op.set, keys, place, parent, end, names=names)

    @timed(Op.get)
    def batch_get_device(
        self,
        keys: Sequence[Key],
        layout: Layout | Sequence[Layout],
        numbers: Sequence[int],
        *,
        parent: Key | None = None,
        timeout_s: float | None = None,
        landed: Callable[[int], None] | None = None,
    ) -> list[Status]:
        """Reads page keys[i] into page numbers[i] of the layout, as `batch_get` does. `layout`: one
        for all pages, or one for each key.

        `landed(n)` is called from inside the call when all pages have their pieces of the stages
        below n. It may be called for some stages only, or for none: the result counts. An
        exception in it ends the call."""
        place = place_in_layouts(keys, layout, numbers)
        end = self._end(timeout_s)
        return self._move(self._session(), Op.get, keys, place, parent, end, landed=landed)

    # --- pages in any buffers --------------------------------------------------------------

    @timed(Op.set)
    def batch_set_buffers(
        self,
        keys: Sequence[Key],
        buffers: Sequence[ReadableBuffer],
        *,
        parent: Key | None = None,
        timeout_s: float | None = None,
        hashes: Sequence[PageHash] | None = None,
        block_tokens: int = 0,
    ) -> list[Status]:
        """Stores buffers[i] under keys[i]. Registered memory is not copied. `hashes`,
        `block_tokens`: see `batch_set`."""
        views = [memory.byte_view(buffer) for buffer in buffers]
        names = Names.of(hashes, len(keys), block_tokens)
        return self._move_buffers(Op.set, keys, views, parent, timeout_s, names=names)

    @timed(Op.get)
    def batch_get_buffers(
        self,
        keys: Sequence[Key],
        buffers: Sequence[WriteableBuffer],
        *,
        parent: Key | None = None,
        timeout_s: float | None = None,
        give_up_s: float | None = None,
        traceparent: str | None = None,
    ) -> list[Status]:
        """Reads page keys[i] into buffers[i]. The lengths must be equal, else the page is a
        miss."""
        views = [memory.byte_view(buffer) for buffer in buffers]
        for i, view in enumerate(views):
            if view.readonly:
                raise ValueError(f"buffers[{i}] is read-only: a page cannot be put there")
        move = partial(
            self._move_buffers, Op.get, keys, views, parent, timeout_s,
            answer_by=_answer_by(give_up_s),
        )  # fmt: skip
        return spans.within("peercache get", traceparent, move)

    def set(
        self,
        key: Key,
        data: ReadableBuffer,
        *,
        parent: Key | None = None,
        timeout_s: float | None = None,
    ) -> Status:
        return self.batch_set_buffers([key], [data], parent=parent, timeout_s=timeout_s)[0]

    def get(
        self,
        key: Key,
        length: int | None = None,
        *,
        timeout_s: float | None = None,
        give_up_s: float | None = None,
        traceparent: str | None = None,
    ) -> bytes | None:
        """The page's bytes. None for a miss, or if the page has another length. Without a `length`
        the daemon is asked for it first. `give_up_s`: see `batch_get`."""
        give_up_at = _answer_by(give_up_s)
        if length is None:
            end = self._end(timeout_s)
            [length] = self.lengths([key], timeout_s=timeout_s)
            if length == 0:
                return None
            timeout_s = end - time.monotonic()
            if timeout_s <= 0:
                return None
            if give_up_at is not None:
                give_up_s = give_up_at - time.monotonic()
                if give_up_s <= 0:
                    return None
        if not 1 <= length <= wire.LENGTH_BYTES_MAX:
            raise ValueError(f"length is {length}: 1 to {wire.LENGTH_BYTES_MAX}")
        if not self._staging().takes(length):
            return None
        page = bytearray(length)
        [status] = self.batch_get_buffers(
            [key], [page], timeout_s=timeout_s, give_up_s=give_up_s, traceparent=traceparent
        )
        return bytes(page) if status else None

    # --- keys ------------------------------------------------------------------------------

    @timed(Op.exists)
    def batch_exists(
        self,
        keys: Sequence[Key],
        *,
        parent: Key | None = None,
        timeout_s: float | None = None,
        hold_s: float = 0.0,
        page_tokens: int = 0,
        page_keys: int = 1,
        wait_s: float = 0.0,
        wait_for: int | None = None,
        again: bool = False,
        cancel: Cancel | None = None,
    ) -> int:
        """Counts the keys that are present, from the first up to the first missing one.

        With `hold_s` (seconds, at most 30) the holders also pin these pages against eviction. A
        page that cannot be pinned counts as missing.

        With `wait_s` (seconds, at most 30) it waits until the first `wait_for` keys are present, by
        default all, and answers as soon as they are. `timeout_s` is for the time beyond that. With
        `hold_s` it waits until the pages can be held. At most 32 calls of a client wait at once;
        others wait for their turn instead. `close` ends waits, and so does `cancel.cancel()` on
        another thread, for all calls with this `cancel`: the pages are then missing.

        `again`, with `wait_s`: the caller has just asked for these keys without waiting. The
        daemon's statistics count them once, and the pages that have come since as found.

        `page_tokens` and `page_keys`: tokens of the prompt that the engine keeps in one page, and
        the keys of a page, for the daemon's statistics of tokens found. 0: not counted. If several
        ranks ask for the same tokens, only one of them should give it.
        """
        if not wait_s >= 0:  # nan, too
            raise ValueError(f"wait_s is {wait_s!r}: give 0 or more seconds")
        if cancel is not None and not isinstance(cancel, Cancel):
            raise TypeError(f"cancel is {cancel!r:.80}: give a peercache_client.Cancel")
        wait_s = min(wait_s, wire.WAIT_MS_MAX / 1000)
        end, session = self._end(timeout_s) + wait_s, self._session()
        wait_end = time.monotonic() + wait_s
        place = None
        if wait_s:
            cancel = cancel or Cancel()
            place = session.place_to_wait(wait_end, cancel)
        present = 0
        for frame in key_frames(keys, parent):
            count = frame.keys
            wanted = count if wait_for is None else min(wait_for - frame.begin, count)
            left_s = wait_end - time.monotonic() if place is not None else 0.0
            flags, body = exists_request(
                frame, hold_s, page_tokens, page_keys, left_s, wanted, again
            )
            reply = session.ask(Op.exists, flags, count, end, body, cancel=cancel)
            if reply is Status.error and flags & Flag.wait:  # from a daemon of an older version
                flags, body = exists_request(frame, hold_s, page_tokens, page_keys)
                reply = session.ask(Op.exists, flags, count, end, body, cancel=cancel)
            if not isinstance(reply, Reply):
                return present
            present += reply.value
            if reply.value < count:
                break
        return present

    @timed(Op.exists)
    def contains(
        self,
        keys: Sequence[Key],
        *,
        parent: Key | None = None,
        timeout_s: float | None = None,
        hold_s: float = 0.0,
        page_tokens: int = 0,
        page_keys: int = 1,
    ) -> list[bool]:
        """Whether each key is present, independently of the others. `hold_s`, `page_tokens` and
        `page_keys` as in `batch_exists`."""
        end = self._end(timeout_s)
        return list(map(bool, self._presence(keys, parent, end, hold_s, page_tokens, page_keys)))

    @timed(Op.exists)
    def forecast(
        self,
        keys: Sequence[Key],
        *,
        parent: Key | None = None,
        timeout_s: float | None = None,
        hold_s: float = 0.0,
        page_tokens: int = 0,
        page_keys: int = 1,
        every: bool = False,
        judged: Judged | None = None,
    ) -> Forecast:
        """Keys that are present, and forecasts of the time to load them: `p50_s[i]` and
        `p90_s[i]`, in seconds, for all present pages up to key i together.

        Keys behind the first missing one count as missing, or with `every` each key counts by
        itself, as in `contains`. The daemon forecasts from loads that it has measured. The times
        are empty if it does not answer or is of an older version. `cold`: pages that only the
        object store has.

        `judged`: what the caller did with earlier forecasts, for the daemon's status. The other
        arguments are those of `batch_exists`."""
        end, session = self._end(timeout_s), self._session()
        return forecast_loads(
            session, keys, parent, end, hold_s, page_tokens, page_keys, every, judged
        )

    @timed(Op.exists)
    def presence(self, keys: Sequence[Key], *, timeout_s: float | None = None) -> list[Status]:
        """As `contains`, with the reason: `ok`, `absent`, or why the daemon could not be asked
        (`deadline`, `no_daemon`, `error`). A page that only a peer may know which does not answer
        is `absent`: to an engine it is a miss."""
        return self._presence(keys, None, self._end(timeout_s))

    def _presence(
        self,
        keys: Sequence[Key],
        parent: Key | None,
        end: float,
        hold_s: float = 0.0,
        page_tokens: int = 0,
        page_keys: int = 1,
    ) -> list[Status]:
        session = self._session()
        found: list[Status] = []
        for frame in key_frames(keys, parent):
            flags, body = exists_request(frame, hold_s, page_tokens, page_keys)
            reply = session.ask(Op.exists, flags | Flag.bitmap, frame.keys, end, body)
            if isinstance(reply, Reply) and len(reply.body) == frame.keys:
                found += [Status.ok if there else Status.absent for there in reply.body]
            else:
                found += [Status.error if isinstance(reply, Reply) else reply] * frame.keys
        return found

    @timed(Op.exists)
    def lengths(
        self, keys: Sequence[Key], *, parent: Key | None = None, timeout_s: float | None = None
    ) -> list[int]:
        """The length in bytes of each key's page; 0 if it is not present."""
        end, session = self._end(timeout_s), self._session()
        found = array("I")
        for frame in key_frames(keys, parent):
            flags = frame.flags | Flag.lengths
            reply = session.ask(Op.exists, flags, frame.keys, end, frame.body)
            if isinstance(reply, Reply) and len(reply.body) == 4 * frame.keys:
                found.frombytes(reply.body)
            else:
                found.extend([0] * frame.keys)
        return found.tolist()

    def remove(self, keys: Sequence[Key], *, timeout_s: float | None = None) -> list[Status]:
        """Removes pages in the whole cluster. `ok`: it was present; `absent`: no node had it.

        `removing`: the daemon could not ask some node that may have the page. The log and
        `peercachectl status` name it. The removal continues by itself. Until then the page may be
        found there, and no node that has heard of the removal takes a set of it. `error`: the page
        is gone, but the daemon could not record that in state_dir. After a restart the page may
        come back. `draining`: the daemon has left its cluster, and nothing was removed.
        """
        end, session = self._end(timeout_s), self._session()
        statuses: list[Status] = []
        for frame in key_frames(keys, None):
            reply = session.ask(Op.remove, frame.flags, frame.keys, end, frame.body)
            statuses += statuses_and_text(reply, frame.keys, "remove")
        return statuses

    def pin(
        self,
        keys: Sequence[Key],
        for_s: float,
        *,
        prefix: bool = False,
        here: bool = False,
        timeout_s: float | None = None,
    ) -> list[Status]:
        """Keeps pages from eviction for `for_s` seconds from now on, at most 3600, at a node that
        holds them. With `here`, brings missing pages to this node and pins them here.

        `prefix`: only the keys before the first one that no node has; the others are `absent`.
        Without it, each key counts by itself. Pinning a page again sets its time anew.

        `no_space`: beyond the bound of pins (docs/client.md); the log has the value and the limit.
        A removal, a clear, or a drain of the node that holds the page ends its pin.
        """
        return pin_pages(self._session(), keys, for_s, prefix, here, self._end(timeout_s))

    def unpin(self, keys: Sequence[Key], *, timeout_s: float | None = None) -> list[Status]:
        """Ends pins at all holders. `absent`: the page was not pinned."""
        return unpin_pages(self._session(), keys, self._end(timeout_s))

    def touch(self, keys: Sequence[Key], *, timeout_s: float | None = None) -> None:
        """Pages that the caller used from a copy of its own: the daemon evicts those in its pool
        later, as after a get. Nothing is moved, and no other node is asked."""
        end, session = self._end(timeout_s), self._session()
        for frame in key_frames(keys, None):
            session.ask(Op.exists, frame.flags | Flag.here, frame.keys, end, frame.body)

    def hint(
        self, envelope: Envelope, keys: Sequence[Key] = (), *, timeout_s: float | None = None
    ) -> list[HintOutcome]:
        """Hands an envelope of hints on, as vLLM, SGLang and routers have it (docs/routers.md):
        one outcome for each of its actions, in order.

        `keys`: the pages of the request that it came with, in order; the first 4096 count. Actions
        without keys of their own are about these. All are about this client's namespace. An empty
        list: there is no daemon, or it refused the whole envelope; the log says why. TypeError or
        ValueError for an envelope that is no JSON, or has more than 256 KiB.
        """
        return send_hints(self._session(), envelope, keys, self._end(timeout_s))

    # --- everything else -------------------------------------------------------------------

    def clear(self, *, timeout_s: float | None = None) -> bool:
        """Removes all pages of this client's namespace in the whole cluster.

        Returns False if there is no daemon, or if a node could not be reached (the log names it).
        """
        reply = self._session().ask(Op.clear, 0, 0, self._end(timeout_s))
        if not isinstance(reply, Reply):
            return False
        if reply.value:
            say(logging.WARNING, "clear: %s", reply.body.decode(errors="replace"))
        return reply.value == 0

    def stats(self, *, timeout_s: float | None = None) -> dict[str, Any]:
        """Keys: "connected", "last_error", "reconnects", "regions", "quarantined" (regions that
        the daemon may still write), and "daemon" (the daemon's own statistics, or None)."""
        session = self._session()
        reply = session.ask(Op.stats, 0, 0, self._end(timeout_s))
        daemon: Any = None
        if isinstance(reply, Reply):
            try:
                daemon = json.loads(reply.body)
            except ValueError as error:
                say(logging.WARNING, "the daemon's statistics cannot be read: %s", error)
        return {
            "connected": isinstance(reply, Reply),
            "last_error": session.last_error,
            "reconnects": session.reconnects,
            "regions": len(self._regions),
            "quarantined": sum(region.segment.quarantined for region in list(self._regions)),
            "daemon": daemon,
        }

    def ping(self, *, timeout_s: float | None = None) -> bool:
        """Whether the daemon answers."""
        reply = self._session().ask(Op.ping, 0, 0, self._end(timeout_s))
        return isinstance(reply, Reply)

    @property
    def last_error(self) -> str:
        """Why the daemon cannot be reached, as far as known; empty while it can."""
        return self._session().last_error

    def _stop(self) -> None:
        """As `close`, without waiting for the running calls."""
        self._session().stop()

    def close(self) -> None:
        """Disconnects after the running calls. Waits for pages end. Later calls return misses."""
        self._session().close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- inside ----------------------------------------------------------------------------

    def _session(self) -> Session:
        session = self._session_here
        if session.pid != os.getpid():
            session = self._session_here = session.of_child()
        return session

    def _staging(self) -> Staging:
        staging = self._staging_here
        if staging.pid != os.getpid():
            staging = self._staging_here = Staging(staging.capacity_bytes)
        return staging

    def _end(self, timeout_s: float | None) -> float:
        if timeout_s is None:
            return time.monotonic() + self._timeout_s
        return time.monotonic() + _checked_timeout(timeout_s)

    def _move(
        self,
        session: Session,
        op: Op,
        keys: Sequence[Key],
        place: Place,
        parent: Key | None,
        end: float,
        caller: bytes = b"",
        landed: Callable[[int], None] | None = None,
        names: Names | None = None,
        answer_by: float | None = None,
    ) -> list[Status]:
        """`caller`: see spans.CallSpan. `landed`: see batch_get_device. `names`: of all keys."""
        statuses: list[Status] = []
        frames = key_frames(keys, parent)
        clashing: set[int] = set()
        if op == Op.get and len(frames) > 1:
            # Within one frame the daemon finds overlaps. A page with an empty key is not written.
            clashing = overlapping(place.ranges(len(keys)))
            if clashing:
                chosen = [b"" if i in clashing else key for i, key in enumerate(keys)]
                frames = key_frames(chosen, parent)
        for frame in frames:
            part = place
            if frame.keys < len(keys):
                part = place.part(frame.begin, frame.begin + frame.keys)
            parts = (frame.lengths, part.offsets, part.lengths, frame.parent, frame.joined)
            body = (*parts, part.layout) if part.layout else parts
            flags = frame.flags | (Flag.layout if part.layout else 0)
            if names is not None:
                flags |= Flag.names
                body = (*body, names.packed(frame.begin, frame.begin + frame.keys))
            # The stages of the last frame are those of all pages.
            tell = landed if frame is frames[-1] and all(statuses) else None
            reply = session.ask(
                op,
                flags | (Flag.stages if tell else 0),
                frame.keys,
                end,
                body,
                part.segments,
                self._silence_s,
                caller,
                tell,
                answer_by=answer_by,
            )
            statuses += mark_quarantined(statuses_of(reply, frame.keys), part)
        for i in clashing:
            statuses[i] = Status.bad_range
        return statuses

    def _move_buffers(
        self,
        op: Op,
        keys: Sequence[Key],
        views: list[memoryview],
        parent: Key | None,
        timeout_s: float | None,
        caller: bytes = b"",
        names: Names | None = None,
        answer_by: float | None = None,
    ) -> list[Status]:
        end = self._end(timeout_s)
        wire.check_keys(keys)
        if isinstance(keys, PackedKeys):
            keys = list(keys)  # the copying path needs single keys
        if len(views) != len(keys):
            raise ValueError(f"{len(keys)} keys and {len(views)} buffers: one for each key")
        wire.pack_parent(parent)
        if not views:
            return []
        regions = RegionIndex(list(self._regions))
        addresses = [_ipc.address_of(view) for view in views]
        places: list[tuple[Region, int] | None] = []
        for i, (address, view) in enumerate(zip(addresses, views, strict=True)):
            if not 1 <= view.nbytes <= wire.LENGTH_BYTES_MAX:
                raise ValueError(
                    f"buffers[{i}] has {view.nbytes} bytes: 1 to {wire.LENGTH_BYTES_MAX}"
                )
            places.append(regions.find(address, view.nbytes))
        session = self._session()
        if all(places):
            found = [place for place in places if place is not None]
            lengths = [view.nbytes for view in views]
            return self._move_placed(
                session, caller, answer_by, op, keys, [one for one, _ in found],
                [at for _, at in found], lengths, parent, end, names,
            )  # fmt: skip
        clashing = set[int]()
        if op == Op.get and len(views) > 1:
            sizes = (view.nbytes for view in views)
            # By address and by file offset: one file may be mapped at several addresses.
            clashing = overlapping(
                [((0, 0), address, size) for address, size in zip(addresses, sizes, strict=True)]
            ) | overlapping_places(places, [view.nbytes for view in views])
        if clashing:
            keys = [b"" if i in clashing else key for i, key in enumerate(keys)]
        try:
            statuses = self._staging().move(
                op, keys, views, places, parent, end, names,
                partial(self._move_placed, session, caller, answer_by),
                partial(self._staging_region, end),
            )  # fmt: skip
        except OSError as error:
            say(logging.WARNING, "no memory for buffers to travel through: %s", error)
            return [Status.error] * len(keys)
        for i in clashing:
            statuses[i] = Status.bad_range
        return statuses

    def _staging_region(self, end: float, size: int) -> Region:
        """A region that no address lookup finds. It is closed when its object is freed."""
        segment = Segment.create(size, "peercache-staging")
        return self._register_file(segment, {}, min(end, time.monotonic() + _REGION_TIMEOUT_S))

    def _move_placed(
        self,
        session: Session,
        caller: bytes,
        answer_by: float | None,
        op: Op,
        keys: Sequence[Key],
        regions: list[Region],
        offsets: list[int],
        lengths: list[int],
        parent: Key | None,
        end: float,
        names: Names | None = None,
    ) -> list[Status]:
        try:
            place = place_pages(keys, regions, offsets, lengths)
        except ValueError:
            # Another thread has closed one of the regions since the lookup.
            return [Status.bad_region] * len(keys)
        return self._move(
            session, op, keys, place, parent, end, caller, names=names, answer_by=answer_by
        )


def _answer_by(give_up_s: float | None) -> float | None:
    if give_up_s is None:
        return None
    return time.monotonic() + _checked_timeout(give_up_s, "give_up_s")


def _checked_timeout(time_s: float, name: str = "timeout_s") -> float:
    if not 0 < time_s <= 3600:
        raise ValueError(f"{name} is {time_s}: above 0 and at most 3600 seconds")
    return float(time_s)
