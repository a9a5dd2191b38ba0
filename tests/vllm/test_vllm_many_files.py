"""The host memory may be several files, as vllm 0.33 makes it for its workers. Each piece of it is
shared in place."""

import ctypes
import functools
import inspect
import mmap
import os
from collections.abc import Sequence
from typing import Any

import pytest
from harness.clock import seconds
from harness.waiting import eventually
from offload_node import CHUNK_BYTES, OffloadNode, content_of, eventually_found, keys_of

from peercache_client import Status, _ipc, notes
from peercache_client.vllm.settings import Settings
from peercache_client.vllm.shared_slots import SharedSlots
from peercache_client.worth import Worth

_MAP_FIXED = 0x10


class ManyFiles:
    """One range of addresses, with a memfd for each piece."""

    def __init__(self, sizes: Sequence[int]) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
        self.bytes = mmap.mmap(-1, sum(sizes), flags=mmap.MAP_PRIVATE)
        self.address = _ipc.address_of(memoryview(self.bytes))
        self.files = [os.memfd_create(f"piece {number}") for number in range(len(sizes))]
        at = self.address
        for fd, size in zip(self.files, sizes, strict=True):
            os.ftruncate(fd, size)
            access = mmap.PROT_READ | mmap.PROT_WRITE
            assert libc.mmap(at, size, access, mmap.MAP_SHARED | _MAP_FIXED, fd, 0) == at
            at += size

    def slots(self, node: Any, namespace: str) -> SharedSlots:
        settings = Settings.parse(
            {"socket_path": str(node.socket_path), "timeout_s": min(seconds(5.0), 60.0)}
        )
        count = len(self.bytes) // CHUNK_BYTES
        return SharedSlots(
            settings,
            "vllm many files",
            lambda: namespace,
            self.address,
            count,
            CHUNK_BYTES,
            Worth(0),
        )

    def slot(self, number: int) -> slice:
        return slice(number * CHUNK_BYTES, (number + 1) * CHUNK_BYTES)

    def paint(self) -> None:
        self.bytes[:] = b"\xa5" * len(self.bytes)

    def close(self) -> None:
        for fd in self.files:
            os.close(fd)


@pytest.mark.parametrize("order", ["in place", "across"])
def test_slots_in_several_files_are_pages(nodes: Any, order: str) -> None:
    """One request has pages of each file. They lie in no order, as vLLM's slots do."""
    host = ManyFiles([40 * CHUNK_BYTES, 56 * CHUNK_BYTES, 104 * CHUNK_BYTES])
    slots = host.slots(nodes[0], f"many files/{order}")
    keys = keys_of(f"many files {order}", 200)
    places = list(range(200)) if order == "in place" else [n * 77 % 200 for n in range(200)]
    for key, place in zip(keys, places, strict=True):
        host.bytes[host.slot(place)] = content_of(key)
    assert set(slots.store(keys, places, None)) == {Status.ok}
    host.paint()
    places.reverse()
    assert set(slots.load(keys, places, None)) == {Status.ok}
    for key, place in zip(keys, places, strict=True):
        assert host.bytes[host.slot(place)] == content_of(key)
    [worker] = [one for one in nodes[0].status()["workers"] if one["name"] == "vllm many files"]
    assert worker["region_bytes"] == len(host.bytes)
    slots.close()
    host.close()


def test_a_slot_in_two_files_is_not_shared(nodes: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The other slots are, also those behind it in the prompt."""
    page = mmap.PAGESIZE
    host = ManyFiles([3 * CHUNK_BYTES + page, 4 * CHUNK_BYTES - page, CHUNK_BYTES])
    slots = host.slots(nodes[0], "cut")
    keys = keys_of("cut", 8)
    for place, key in enumerate(keys):
        host.bytes[host.slot(place)] = content_of(key)
    expected = [Status.bad_range if place == 3 else Status.ok for place in range(8)]
    assert slots.store(keys, range(8), None) == expected
    assert slots.forecast(keys).present == [place != 3 for place in range(8)]
    host.paint()
    assert slots.load(keys, range(8), None) == expected
    for place, key in enumerate(keys):
        right = b"\xa5" * CHUNK_BYTES if place == 3 else content_of(key)
        assert host.bytes[host.slot(place)] == right
    eventually(notes.flush, 20, "the log")
    [line] = [one.getMessage() for one in caplog.records if "slots" in one.getMessage()]
    assert line.endswith("1 of vLLM's 8 slots lie in two files: not shared")
    assert not [one for one in caplog.records if "bad_range" in one.getMessage()]
    slots.close()
    host.close()


def test_a_region_of_vllm_in_several_files_is_shared(
    nodes: Any, make_node: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """vLLM's own region, with as many files as its workers' region has."""
    from vllm.v1.kv_offload.cpu import shared_offload_region
    from vllm.v1.kv_offload.tiering import spec

    region = shared_offload_region.SharedOffloadRegion
    if "num_segments" not in inspect.signature(region).parameters:
        pytest.skip("before vllm 0.33, the region is one file")
    monkeypatch.setattr(shared_offload_region, "_MIN_SEGMENT_BYTES", CHUNK_BYTES)
    monkeypatch.setattr(spec, "SharedOffloadRegion", functools.partial(region, num_segments=32))
    keys = keys_of("vLLM's files", 48)
    first: OffloadNode = make_node(nodes[0].socket_path, slots=64)
    first.prefill(keys)
    assert len(first.tier._slots._attached.regions) == 32
    eventually_found(make_node(nodes[1].socket_path, slots=64), keys)
