"""A worker pins its region for CUDA while the daemon maps it, as with SGLang's host pools. Both
use the same pages at full speed and at the same time."""

import ctypes
import os
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from gpu import driver
from gpu.cuda import Gpu
from peercache_client import Client, Region

PAGE_BYTES = 1 << 20
PAGES = 64
REGION_BYTES = 2 * PAGES * PAGE_BYTES  # one half to set from, one half to get into


@pytest.fixture
def clients(nodes: Any) -> Iterator[list[Client]]:
    made = [Client(str(node.socket_path), namespace="gpu") for node in nodes.daemons]
    yield made
    for client in made:
        client.close()


@contextmanager
def pinned(gpu: Gpu, region: Region) -> Iterator[None]:
    gpu.pin(region.address, REGION_BYTES)
    try:
        yield
    finally:
        gpu.unpin(region.address)


@contextmanager
def device_memory(gpu: Gpu, size_bytes: int) -> Iterator[int]:
    address = gpu.alloc(size_bytes)
    try:
        yield address
    finally:
        gpu.free(address)


def content(seed: object, size_bytes: int = PAGES * PAGE_BYTES) -> bytes:
    return random.Random(str(seed)).randbytes(size_bytes)


def keys_of(name: str) -> list[str]:
    return [f"{name} {number}" for number in range(PAGES)]


def offsets(first_page: int) -> list[int]:
    return [(first_page + number) * PAGE_BYTES for number in range(PAGES)]


@pytest.mark.parametrize("mapped_first", [True, False], ids=["daemon first", "CUDA first"])
def test_gpu_data_reaches_the_gpu_of_another_worker(
    gpu: Gpu, clients: list[Client], mapped_first: bool
) -> None:
    """Compares every byte after its way: device, region, pool, network, region, device."""
    name = f"there {mapped_first}"
    expected = content(name)
    size_bytes = len(expected)
    one, other = (client.alloc(REGION_BYTES) for client in clients)
    if mapped_first:  # the daemon maps a region at its first use
        for client, region in zip(clients, (one, other), strict=True):
            assert client.batch_set([f"{name} first"], region, [0], 1)[0]
    stream = gpu.stream()
    with pinned(gpu, one), pinned(gpu, other), device_memory(gpu, 2 * size_bytes) as device:
        written = ctypes.create_string_buffer(expected, size_bytes)
        gpu.to_device(device, ctypes.addressof(written), size_bytes, stream)
        gpu.to_host(one.address, device, size_bytes, stream)
        gpu.wait(stream)
        assert all(clients[0].batch_set(keys_of(name), one, offsets(0), PAGE_BYTES))
        one.view[:] = bytes(REGION_BYTES)  # the worker may reuse it after the set
        assert all(clients[1].batch_get(keys_of(name), other, offsets(PAGES), PAGE_BYTES))
        got = other.address + PAGES * PAGE_BYTES
        gpu.to_device(device + size_bytes, got, size_bytes, stream)
        read = ctypes.create_string_buffer(size_bytes)
        gpu.to_host(ctypes.addressof(read), device + size_bytes, size_bytes, stream)
        gpu.wait(stream)
        assert read.raw == expected


@pytest.mark.parametrize("to_device", [True, False], ids=["to the device", "to the host"])
def test_copies_run_at_the_speed_of_ordinary_pinned_memory(
    gpu: Gpu, clients: list[Client], to_device: bool
) -> None:
    if driver.environment():
        pytest.skip("the fake driver has the speed of this processor")
    region = clients[0].alloc(REGION_BYTES)
    assert clients[0].batch_set(["speed"], region, [0], 1)[0]  # the daemon has mapped it
    ordinary = gpu.alloc_pinned(REGION_BYTES)
    try:
        with pinned(gpu, region), device_memory(gpu, REGION_BYTES) as device:
            speeds = [
                gpu.gb_per_s(host, device, REGION_BYTES, to_device=to_device)
                for host in (ordinary, region.address)
            ]
    finally:
        gpu.free_pinned(ordinary)
    print(f"ordinary pinned memory {speeds[0]:.1f} GB/s, region {speeds[1]:.1f} GB/s")
    assert speeds[1] >= 0.9 * speeds[0]


def test_pages_are_set_and_got_while_copies_run(gpu: Gpu, clients: list[Client]) -> None:
    """Copies use one half of the region without pause, while pages go through the other half."""
    setter, getter = clients
    region, room = setter.alloc(REGION_BYTES), getter.alloc(REGION_BYTES)
    half = PAGES * PAGE_BYTES
    on_device = content("device", half)
    end = threading.Event()
    rounds = [0]
    wrong: list[object] = []

    def copy(device: int) -> None:
        """Copies the device's bytes to the first halves and to another place on the device."""
        gpu.use()
        stream = gpu.stream()
        read = ctypes.create_string_buffer(half)
        try:
            while not end.is_set():
                for target in (region, room):
                    gpu.to_host(target.address, device, half, stream)
                    gpu.to_device(device + half, target.address, half, stream)
                    gpu.to_host(ctypes.addressof(read), device + half, half, stream)
                    gpu.wait(stream)
                    if read.raw != on_device or target.view[:half] != on_device:
                        wrong.append("copy")
                rounds[0] += 1
        except BaseException as error:
            wrong.append(error)

    with pinned(gpu, region), pinned(gpu, room), device_memory(gpu, 2 * half) as device:
        stream = gpu.stream()
        start = ctypes.create_string_buffer(on_device, half)
        gpu.to_device(device, ctypes.addressof(start), half, stream)
        gpu.wait(stream)
        copying = threading.Thread(target=copy, args=[device])
        copying.start()
        try:
            moved = 0
            while (rounds[0] < 5 or moved < 5) and not wrong:
                name = f"while {os.getpid()} {moved}"
                region.view[half:] = expected = content(name, half)
                assert all(setter.batch_set(keys_of(name), region, offsets(PAGES), PAGE_BYTES))
                assert all(getter.batch_get(keys_of(name), room, offsets(PAGES), PAGE_BYTES))
                assert room.view[half:] == expected
                moved += 1
        finally:
            end.set()
            copying.join()
    assert not wrong
