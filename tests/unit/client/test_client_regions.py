"""Memory that can be shared, and the search for the file behind it."""

import contextlib
import ctypes
import mmap
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import ipc_stand_in as ipc
from harness.ipc_stand_in import IpcStandIn
from harness.waiting import eventually

from peercache_client import Client, Status, _ipc, memory, notes

SIZE = 1 << 16


@pytest.fixture
def memfd() -> Iterator[int]:
    fd = os.memfd_create("test", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
    os.ftruncate(fd, SIZE)
    yield fd
    os.close(fd)


def test_a_descriptor_is_shared_as_a_whole(client: Client, memfd: int) -> None:
    os.pwrite(memfd, b"content", 100)
    region = client.register(memfd)
    assert region.size == SIZE
    assert bytes(region.view[100:107]) == b"content"
    assert all(client.batch_set(["k"], region, [100], 7))
    assert client.get("k", 7) == b"content"


def test_an_mmap_is_found_without_its_descriptor(client: Client, memfd: int) -> None:
    mapped = mmap.mmap(memfd, SIZE)
    region = client.register(mapped)
    assert region.size == SIZE
    mapped[8:12] = b"page"
    assert all(client.batch_set(["k"], region, [8], 4))
    assert all(client.batch_get(["k"], region, [500], 4))
    assert mapped[500:504] == b"page"


def test_slice_of_a_mapping_is_a_window_with_its_own_offsets(
    client: Client, daemon: IpcStandIn, memfd: int
) -> None:
    mapped = mmap.mmap(memfd, SIZE)
    keys = client.register(memoryview(mapped)[:1000])
    values = client.register(memoryview(mapped)[1000:3000])
    assert (keys.size, values.size) == (1000, 2000)
    values.view[:4] = b"page"
    assert mapped[1000:1004] == b"page"
    assert all(client.batch_set(["k"], values, [0], 4))
    assert all(client.batch_get(["k"], [keys], [10], 4))
    assert mapped[10:14] == b"page"
    assert len(daemon.asked(ipc.REGISTER)) == 1, "both are windows of one file"
    keys.close()
    assert all(client.batch_get(["k"], values, [1996], 4))
    assert mapped[2996:3000] == b"page"
    values.close()
    assert len(daemon.asked(ipc.UNREGISTER)) == 1


def test_a_mapping_that_starts_inside_its_file_is_found(client: Client, memfd: int) -> None:
    mapped = mmap.mmap(memfd, 8192, offset=16384)
    region = client.register(mapped)
    os.pwrite(memfd, b"there", 16384 + 5)
    assert all(client.batch_set(["k"], region, [5], 5))
    assert client.get("k", 5) == b"there"


def test_memory_split_by_the_kernel_is_one_region(client: Client, memfd: int) -> None:
    mapped = mmap.mmap(memfd, SIZE)
    # Different advice for one part splits the mapping into several lines of /proc/self/maps.
    mapped.madvise(mmap.MADV_DONTFORK, 16384, 16384)
    region = client.register(mapped)
    region.view[SIZE - 4 :] = b"last"
    assert all(client.batch_set(["k"], region, [SIZE - 4], 4))
    assert client.get("k", 4) == b"last"


def test_memory_known_by_its_address_is_found(client: Client, memfd: int) -> None:
    mapped = mmap.mmap(memfd, SIZE)
    raw = (ctypes.c_char * SIZE).from_buffer(mapped)
    region = client.register_memory(ctypes.addressof(raw) + 4096, 8192)
    mapped[4096:4100] = b"page"
    assert all(client.batch_set(["k"], region, [0], 4))
    assert client.get("k", 4) == b"page"
    assert client.locate(ctypes.addressof(raw) + 4200, 10) == (region, 104)
    assert client.locate(ctypes.addressof(raw), 10) is None
    assert client.locate(ctypes.addressof(raw) + 4096, 8193) is None
    del raw


def test_anything_with_the_buffer_protocol_will_do(client: Client, memfd: int) -> None:
    numpy = pytest.importorskip("numpy")
    pages = numpy.frombuffer(mmap.mmap(memfd, SIZE), dtype=numpy.float32).reshape(16, -1)
    region = client.register(pages)
    pages[3, :] = 1.5
    page_bytes = pages[3].nbytes
    assert all(client.batch_set(["k"], region, [3 * page_bytes], page_bytes))
    assert all(client.batch_get(["k"], region, [0], page_bytes))
    assert (pages[0] == 1.5).all()


def test_a_tmpfs_file_will_do_also_by_its_path_alone(client: Client) -> None:
    """POSIX shared memory: its owner may have closed the descriptor."""
    path = Path(f"/dev/shm/peercache-test-{os.getpid()}")
    path.write_bytes(bytes(SIZE))
    try:
        status = path.stat()
        device = (os.major(status.st_dev), os.minor(status.st_dev))
        # Nothing is mapped there: the process cannot use /proc/self/map_files either.
        mapping = memory.Mapping(0, SIZE, True, True, 0, device, status.st_ino, str(path))
        found = memory._open_mapped_file(mapping)
        assert found.identity == (status.st_dev, status.st_ino)
        with pytest.raises(ValueError, match="no open descriptor"):
            memory._open_mapped_file(mapping._replace(inode=status.st_ino + 1))
        with path.open("r+b") as file:
            region = client.register(mmap.mmap(file.fileno(), SIZE))
    finally:
        path.unlink()
    assert all(client.batch_set(["k"], region, [0], 4))


def test_private_and_read_only_memory_is_refused_with_the_remedy(
    client: Client, memfd: int
) -> None:
    private = mmap.mmap(memfd, SIZE, flags=mmap.MAP_PRIVATE)
    with pytest.raises(ValueError, match=r"private.*Client\.alloc"):
        client.register(private)
    read_only = mmap.mmap(memfd, SIZE, prot=mmap.PROT_READ)
    with pytest.raises(ValueError, match="read-only"):
        client.register(read_only)


def test_memory_beyond_its_mapping_is_refused(client: Client, memfd: int) -> None:
    mapped = mmap.mmap(memfd, SIZE)
    raw = (ctypes.c_char * SIZE).from_buffer(mapped)
    with pytest.raises(ValueError):
        client.register_memory(ctypes.addressof(raw), 1 << 40)
    del raw


def test_a_file_that_grew_must_be_registered_anew(client: Client, memfd: int) -> None:
    region = client.register(memfd)
    os.ftruncate(memfd, 2 * SIZE)
    with pytest.raises(ValueError, match=str(2 * SIZE)):
        client.register(memfd)
    region.close()
    assert client.register(memfd).size == 2 * SIZE


def test_refused_region_gives_bad_region_and_is_logged(
    client: Client, daemon: IpcStandIn, caplog: pytest.LogCaptureFixture
) -> None:
    daemon.refuse_regions = True
    region = client.alloc(4096)
    assert client.batch_set(["k"], region, [0], 4) == [Status.bad_region]
    notes.flush()
    assert "no more regions" in caplog.text


def test_no_descriptor_stays_open_behind_a_closed_region(client: Client) -> None:
    client.ping()

    def open_files() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = open_files()
    for _ in range(10):
        client.alloc(4096).close()
    assert open_files() <= before


def test_releasing_a_view_keeps_the_region_mapped(client: Client) -> None:
    region = client.alloc(4096)
    with region.view as view:
        view[:4] = b"page"
    assert client.batch_set(["k"], region, [0], 4) == [Status.ok]
    assert bytes(region.view[:4]) == b"page"
    # New mappings must not land at the region's address.
    for _ in range(16):
        other = mmap.mmap(-1, 4096)
        other[:4] = b"else"
        assert client.locate(_ipc.address_of(memoryview(other)), 4096) is None


def test_a_region_that_was_refused_is_asked_for_again(client: Client, daemon: IpcStandIn) -> None:
    daemon.refuse_regions = True
    region = client.alloc(4096)
    assert client.batch_set(["k"], region, [0], 4) == [Status.bad_region]
    assert client.set("plain", b"page") is Status.bad_region
    daemon.refuse_regions = False
    eventually(lambda: client.batch_set(["k"], region, [0], 4) == [Status.ok])
    assert client.set("plain", b"page") is Status.ok


def test_region_unknown_to_the_daemon_is_registered_again(
    client: Client, daemon: IpcStandIn
) -> None:
    """One thread closed a region, and another registered its file before the daemon knew of
    that."""
    region, other = client.alloc(4096), client.alloc(4096)
    assert client.batch_set(["k"], region, [0], 4) == [Status.ok]
    assert client.batch_set(["l"], other, [0], 4) == [Status.ok]
    daemon.attachments[-1].regions.clear()
    assert client.batch_get(["k"], region, [8], 4) == [Status.ok]
    assert client.batch_set(["m"], other, [0], 4) == [Status.ok]


def test_registering_a_file_again_repairs_a_lost_descriptor(
    client: Client, daemon: IpcStandIn
) -> None:
    first = client.alloc(4096)
    copy = os.dup(next(iter(descriptors_of(first.segment.identity))))
    for number in descriptors_of(first.segment.identity) - {copy}:
        os.close(number)
    second = client.register(copy)
    daemon.stop()
    daemon.start()
    eventually(client.ping)
    assert client.batch_set(["k"], first, [0], 4) == [Status.ok]
    first.close()
    assert client.batch_get(["k"], second, [8], 4) == [Status.ok]
    os.close(copy)


def descriptors_of(identity: tuple[int, int]) -> set[int]:
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            status = os.fstat(int(entry.name))
            if (status.st_dev, status.st_ino) == identity:
                found.add(int(entry.name))
    return found
