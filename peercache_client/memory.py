"""Finds the file behind an address range of this process."""

from __future__ import annotations

import bisect
import fcntl
import os
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from peercache_client._ipc import Segment

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

REMEDY: Final = (
    "take the memory from Client.alloc(), or from a memfd mapped with MAP_SHARED; "
    "batch_set_buffers() and batch_get_buffers() copy pages of other buffers"
)


def byte_view(buffer: ReadableBuffer) -> memoryview:
    """A flat view of the buffer's bytes. TypeError, ValueError."""
    view = memoryview(buffer)
    if not view.c_contiguous:
        raise ValueError("a buffer must be contiguous in memory: copy it first")
    return view if view.format == "B" and view.ndim == 1 else view.cast("B")


class Mapping(NamedTuple):
    """One line of /proc/self/maps."""

    start: int
    end: int
    shared: bool
    writable: bool
    offset: int  # file offset of `start`
    device: tuple[int, int]
    inode: int
    path: str


def read_mappings(begin: int = 0, behind: int = 1 << 64, pid: int | None = None) -> list[Mapping]:
    """The mappings of this process, or of process `pid`, that overlap addresses `begin` to
    `behind`, sorted by address. OSError."""
    mappings = []
    # A process with CUDA has thousands of lines, so lines outside the range are not parsed.
    for line in Path(f"/proc/{pid or 'self'}/maps").read_bytes().splitlines():
        start, _, rest = line.partition(b"-")
        if int(start, 16) >= behind:
            break
        end = rest[: rest.index(b" ")]
        if int(end, 16) <= begin:
            continue
        fields = line.split(maxsplit=5)
        major, minor = fields[3].split(b":")
        mappings.append(
            Mapping(
                int(start, 16),
                int(end, 16),
                fields[1][3:4] == b"s",
                fields[1][1:2] == b"w",
                int(fields[2], 16),
                (int(major, 16), int(minor, 16)),
                int(fields[4]),
                os.fsdecode(fields[5]) if len(fields) > 5 else "",
            )
        )
    return mappings


class Extent(NamedTuple):
    address: int
    size_bytes: int
    inode: int  # tells apart different memory at the same address


def find_extent(address: int, mappings: Sequence[Mapping]) -> Extent:
    """The whole part of one shared file that is mapped around this address. ValueError: none.

    All views of one allocation (K and V of one host pool) give the same extent. `mappings`: all
    current mappings of this process.
    """
    at = bisect.bisect_right([mapping.start for mapping in mappings], address) - 1
    if at < 0 or address >= mappings[at].end:
        raise ValueError(f"there is no memory at {address:#x}")
    mapping = mappings[at]
    if not mapping.shared or mapping.inode == 0:
        raise ValueError(f"the memory at {address:#x} is private to this process: {REMEDY}")
    first = last = at
    while first > 0 and _continues(mappings[first - 1], mappings[first]):
        first -= 1
    while last + 1 < len(mappings) and _continues(mappings[last], mappings[last + 1]):
        last += 1
    start = mappings[first].start
    return Extent(start, mappings[last].end - start, mapping.inode)


def _continues(one: Mapping, other: Mapping) -> bool:
    """Whether `other` maps the bytes that follow `one` in the same file."""
    return (
        other.shared
        and one.end == other.start
        and one.inode == other.inode
        and one.device == other.device
        and one.start - one.offset == other.start - other.offset
    )


def is_writable_memory(address: int, size_bytes: int) -> bool:
    """Whether this process can read and write all these bytes. False for GPU memory: CUDA reserves
    its address ranges without any access."""
    covered, end = address, address + size_bytes
    for mapping in read_mappings(address, end):
        if mapping.start <= covered < mapping.end and mapping.writable:
            covered = mapping.end
    return covered >= end


def pieces_by_file(address: int, size_bytes: int) -> list[tuple[int, int]]:
    """Splits these bytes where another file, or another part of a file, begins: the address and
    size of each piece. It checks no piece, `find_backing` does."""
    end = address + size_bytes
    mappings = read_mappings(address, end)
    starts = [after.start for one, after in pairwise(mappings) if not _continues(one, after)]
    return [(start, after - start) for start, after in pairwise([address, *starts, end])]


class Backing(NamedTuple):
    segment: Segment
    offset: int  # file offset of the first byte


def find_backing(address: int, size_bytes: int) -> Backing:
    """Returns a descriptor of the file behind this memory.

    Raises ValueError if the daemon could not map it: private memory, several files, or a mapped
    file without an open descriptor in this process.
    """
    end = address + size_bytes
    first: Mapping | None = None
    covered = address
    # The kernel splits one mmap into several lines where flags differ (madvise, locking).
    for mapping in read_mappings(address, end):
        if mapping.start > covered:
            break
        if not mapping.shared or mapping.inode == 0:
            raise ValueError(f"the memory at {covered:#x} is private to this process: {REMEDY}")
        if not mapping.writable:
            raise ValueError(f"the memory at {covered:#x} is mapped read-only: map it writable")
        if first is None:
            first = mapping
        elif (
            mapping.inode != first.inode
            or mapping.device != first.device
            or mapping.start - mapping.offset != first.start - first.offset
        ):
            raise ValueError(
                f"the {size_bytes} bytes at {address:#x} are not one piece of one file: "
                f"register {mapping.path or 'each mapping'} on its own"
            )
        covered = mapping.end
    if first is None or covered < end:
        raise ValueError(f"the {size_bytes} bytes at {address:#x} are not all mapped memory")
    return Backing(_open_mapped_file(first), address - first.start + first.offset)


def _open_mapped_file(mapping: Mapping) -> Segment:
    for entry in Path("/proc/self/fd").iterdir():
        try:
            fd = int(entry.name)
            status = os.fstat(fd)
            device = (os.major(status.st_dev), os.minor(status.st_dev))
            is_it = status.st_ino == mapping.inode and device == mapping.device
            # The daemon writes there.
            if is_it and fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDWR:
                segment = Segment.duplicate(fd)
                # Another thread may have reused the number since fstat.
                if segment.identity == (status.st_dev, status.st_ino):
                    return segment
        except OSError:
            continue  # closed since the listing
    try:
        # POSIX shared memory has a path, and its owner usually closes the descriptor.
        segment = Segment.open(mapping.path)
        device_number, inode = segment.identity
        device = (os.major(device_number), os.minor(device_number))
        if (device, inode) == (mapping.device, mapping.inode):
            return segment
    except OSError:
        pass  # no path, deleted, or not ours to open
    try:
        # Needs no descriptor, but CAP_CHECKPOINT_RESTORE.
        return Segment.open(f"/proc/self/map_files/{mapping.start:x}-{mapping.end:x}")
    except OSError as error:
        raise ValueError(
            f"no open descriptor of {mapping.path or 'the file'} behind the memory at "
            f"{mapping.start:#x} ({error}): keep the memfd open, or {REMEDY}"
        ) from None
