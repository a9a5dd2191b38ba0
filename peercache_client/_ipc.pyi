"""The client's stream to the daemon and the memory that it shares, in C++ (native/client/).

In a call of these nothing of the program runs in between but in the waits: other threads and signal
handlers. What a handler raises is raised when the daemon has been fenced off. Every state is legal
at each bytecode of the caller: what must not be lost belongs to an object whose end gives it back.

Times that end something are seconds of time.monotonic().
"""

from collections.abc import Callable, Iterable, Sequence

from _typeshed import ReadableBuffer

class Mapping:
    """A segment's bytes in this process: writable, by the buffer protocol."""
    def __buffer__(self, flags: int, /) -> memoryview: ...

class Segment:
    """One shared file, whatever the number of regions in it: what the daemon maps, once."""
    @staticmethod
    def create(bytes: int, name: str) -> Segment:
        """A new file of zeros. OSError."""
    @staticmethod
    def duplicate(fd: int) -> Segment:
        """OSError."""
    @staticmethod
    def open(path: str) -> Segment:
        """OSError."""
    @staticmethod
    def of_memory(fd: int, bytes: int, kind: int, device: bytes, opaque: bytes) -> Segment:
        """Memory of a device, as `DeviceMemory` has it. ValueError, OSError."""
    def map(self) -> Mapping:
        """OSError."""
    @property
    def size_bytes(self) -> int: ...
    @property
    def of_device(self) -> bool:
        """Memory of a GPU: it cannot be mapped."""
    @property
    def identity(self) -> tuple[int, int]:
        """Device and inode of the file."""
    @property
    def quarantined(self) -> bool:
        """The daemon may still be writing here, for a request that was given up."""
    @property
    def lost(self) -> bool:
        """Its descriptor is closed: the daemon cannot be given it any more."""

class Hold:
    """With the last one a segment's file is closed, and the daemon is told."""
    @property
    def segment(self) -> Segment: ...

class Segments:
    """Those of one client."""
    def hold(self, segment: Segment) -> Hold:
        """Of the segment that is in use for that file already, else of this one."""

class Cancel:
    """Ends requests of other threads whose answers may take long: they find the daemon away. One
    Cancel may be given to many requests, also of several clients."""
    def __init__(self) -> None: ...
    def cancel(self) -> None: ...
    @property
    def cancelled(self) -> bool: ...

def part_of(cancel: Cancel) -> Cancel:
    """A new one, which is cancelled, too, when `cancel` is."""

class Session:
    def __init__(self, path: bytes, namespace_: bytes, name: bytes) -> None: ...
    def ask(
        self,
        op: int,
        flags: int,
        count: int,
        body: tuple[bytes, ...],
        segments: Sequence[Segment],
        end: float,
        silence_s: float | None,
        caller: bytes,
        landed: Callable[[int], None] | None,
        cancel: Cancel | None,
        answer_by: float | None,
    ) -> tuple[int, int, int, bytes]:
        """(result, error code, value, body or sentence); results: see session.py.

        `segments`: a list, of one for all pages or of each page's; their ids go behind the first
        part of a SET's or a GET's body. `silence_s`: for how long a GET that is given up waits for
        the daemon to end its last write; None: without limit.

        `caller`: the caller's span, or empty. A daemon that does not know spans is not told of it.
        """
    def note_took(self, op: int, seconds: float) -> None:
        """How long a call took: 1 SET, 2 GET, 3 EXISTS. A later request tells the daemon."""
    def sweep(self, end: float) -> None:
        """Tells the daemon of segments that nobody holds any more."""
    def place_to_wait(self, end: float, cancel: Cancel | None) -> Slot | None:
        """Half of the connections may wait for pages. None: no place was free in time, or the wait
        is over."""
    def stop(self) -> None:
        """Later calls find the daemon away, and requests with a Cancel end. Does not wait."""
    def close(self) -> None:
        """As `stop`. Waits for requests of other threads, unless this thread is inside its own."""
    @property
    def closed(self) -> bool: ...
    @property
    def last_error(self) -> bytes: ...
    @property
    def reconnects(self) -> int: ...
    @property
    def has_notes(self) -> bool: ...
    def take_notes(self) -> list[tuple[bool, bytes]]:
        """What somebody should be told: (whether memory is out of use, sentence)."""

class Slot: ...

class Slots:
    """So many may do something at once; a slot that ends is free again."""
    def __init__(self, count: int) -> None: ...
    def take(self, end: float) -> Slot | None:
        """None: none was free in time."""

def pack_keys(keys: Iterable[str | bytes]) -> tuple[bytes, bytes]:
    """The u32 lengths of the keys in UTF-8, and the keys concatenated. TypeError."""

def address_of(buffer: ReadableBuffer) -> int:
    """Of the first byte. BufferError, TypeError."""

def view_at(address: int, bytes: int) -> memoryview:
    """Writable bytes at an address, which keeps nothing alive."""

def waited_s() -> float:
    """For how long this thread's calls have waited, while other threads could run."""

def abandon_connections() -> None:
    """In a forked child: the connections are its parent's."""
