"""Set and get of pages in memory of a GPU, beside cudaMemcpy of one piece from pinned memory.

    make bench-gpu-pages ARGS="[--repeats 7] [--json FILE]"

A page has a piece for K and one for V in each layer, and a daemon copies pages of its own pool.
Without NVIDIA's driver, tests/gpu/fake_cuda.c plays it. Then the figures say nothing about a GPU.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import time
from argparse import ArgumentParser
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final

from gpu import driver
from gpu.cuda import Gpu, GpuMemory
from harness.fixtures import cluster_maker
from harness.layered_pages import Shape, layered_pages
from harness.pages import keys_of

from peercache_client import Client

PAGES_KIB: Final = (128, 512, 2048, 8192)
LAYERS: Final = (32, 80)
CALL_BYTES: Final = 64 << 20  # of one call, or 128 pages
POOL_BYTES: Final = 2 << 30
COPIES_MAX: Final = 2000  # of one piece, in a turn

Figures = dict[str, float]


def shape_of(page_kib: int, layers: int) -> Shape:
    """Pieces of a multiple of 16 bytes. So some pages are a little smaller."""
    piece = (page_kib << 10) // (2 * layers) // 16 * 16
    return Shape(layers=2 * layers, tokens=1, row=piece, by_token=False, allocations=2)


def measure(gpu: Gpu, client: Client, shape: Shape, repeats: int) -> Figures:
    count = min(128, CALL_BYTES // shape.page_bytes)
    copies = min(COPIES_MAX, count * shape.layers)
    moved_bytes, copied_bytes = count * shape.page_bytes, copies * shape.row
    seen: dict[str, list[float]] = {"set": [], "get": [], "copy out": [], "copy in": []}

    def note(name: str, size: int, took_s: float) -> None:
        seen[name].append(size / 1e9 / took_s)

    pinned, beside = gpu.alloc_pinned(copied_bytes), gpu.alloc(copied_bytes)
    with layered_pages(client, count, partial(GpuMemory, gpu), shape) as pages:
        numbers = random.Random(1).sample(range(count), count)
        for turn in range(repeats + 1):
            keys = keys_of(str(turn), count)
            for name, batch in (("set", client.batch_set_device), ("get", client.batch_get_device)):
                began = time.perf_counter()
                assert all(batch(keys, pages.layout, numbers))
                note(name, moved_bytes, time.perf_counter() - began)
            for name, to_device in (("copy out", False), ("copy in", True)):
                copy_s = gpu.copies_s(pinned, beside, shape.row, copies, to_device=to_device)
                note(name, copied_bytes, copy_s)
        keys = keys_of("compared", count)
        assert all(pages.store(client, keys))
        pages.check(client, keys)
    gpu.free(beside)
    gpu.free_pinned(pinned)
    assert client.clear()
    out, into, set_, get = (
        median(seen[name][1:]) for name in ("copy out", "copy in", "set", "get")
    )
    return {
        "page_bytes": shape.page_bytes, "pieces": shape.layers, "piece_bytes": shape.row,
        "set_gb_per_s": set_, "copy_to_host_gb_per_s": out, "set_of_copy": set_ / out,
        "get_gb_per_s": get, "copy_to_device_gb_per_s": into, "get_of_copy": get / into,
    }  # fmt: skip


def machine(gpu: Gpu) -> str:
    if driver.environment():
        return "no GPU: a fake driver copies with this processor"
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    if shutil.which(command[0]) is None:
        return gpu.name
    found = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()
    return f"{gpu.name}, driver {found[0] if found else 'unknown'}"


def main() -> None:
    parser = ArgumentParser()
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    driver.environment()
    gpu, found = Gpu(), list[Figures]()
    with ExitStack() as stack:
        make = cluster_maker(stack, {}, 60.0, driver.spawn)
        [daemon] = make(1, gpu="cuda", pool_size=POOL_BYTES).daemons
        client = stack.enter_context(Client(daemon.socket_path, "bench", timeout_s=60))
        measure(gpu, client, shape_of(2048, 32), 30)  # meanwhile the driver pins the pool
        print(f"{machine(gpu)}; medians of {given.repeats}, share of cudaMemcpy of one piece")
        print(
            f"{'page':>8} {'pieces':>12} {'set GB/s':>9} {'share':>6} {'get GB/s':>9} {'share':>6}"
        )
        for layers in LAYERS:
            for page_kib in PAGES_KIB:
                seen = measure(gpu, client, shape_of(page_kib, layers), given.repeats)
                found.append(seen)
                print(
                    f"{page_kib:>4} KiB {2 * layers:>4} x {seen['piece_bytes'] / 1024:>5.1f}"
                    f" {seen['set_gb_per_s']:>9.2f} {seen['set_of_copy']:>6.0%}"
                    f" {seen['get_gb_per_s']:>9.2f} {seen['get_of_copy']:>6.0%}",
                    flush=True,
                )
    if given.json:
        given.json.write_text(json.dumps({"machine": machine(gpu), "pages": found}, indent=1))


if __name__ == "__main__":
    main()
