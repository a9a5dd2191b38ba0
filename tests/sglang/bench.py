"""Speed through SGLang's controller, beside the client alone: `make bench-sglang`.

Batches of 128 pages of 256 KiB (K and V of 128 KiB), MHA page_first, on one node and between two.
"""

import statistics
import time
from collections.abc import Callable
from typing import Any

import on_cpu
import pages
from controller_node import ControllerNode, Shape
from harness.fixtures import FAST

from peercached.demo.cluster import Cluster

PAGES = 128
ROUNDS = 12
SHAPE = Shape(page_size=64, layers=8, heads=8, head_dim=16, v_head_dim=16, tokens=64 * PAGES)


def median_s(action: Callable[[int], Any]) -> float:
    took = []
    for i in range(ROUNDS):
        began = time.perf_counter()
        action(i)
        took.append(time.perf_counter() - began)
    return statistics.median(took)


def main() -> None:
    on_cpu.install()
    options = {**FAST, "pool-size": "2GiB"}
    with Cluster(2, options=options) as cluster:
        cluster.start()
        with (
            ControllerNode(cluster[0].socket_path, SHAPE, model="bench") as one,
            ControllerNode(cluster[1].socket_path, SHAPE, model="bench") as other,
        ):
            measure(one, other)


def measure(one: ControllerNode, other: ControllerNode) -> None:
    prompts = [pages.tokens(f"prompt {i}", PAGES * 64) for i in range(ROUNDS)]
    keys = [one.controller.get_hash_str(tokens, None, page_size=64) for tokens in prompts]
    source = pages.alloc(one.pool, PAGES)
    pages.fill(one.pool, source, "bench")
    batch_bytes = PAGES * one.pool.size_per_token * 64
    client, form = one.backend._client, one.backend._forms["kv"]
    place = form.source(keys[0], source)
    names = [[f"client {i} {k}" for k in range(len(place.keys))] for i in range(ROUNDS)]

    def gb(took_s: float) -> str:
        return f"{took_s * 1e3:7.2f} ms  {batch_bytes / took_s / 1e9:6.2f} GB/s"

    def line(what: str, took_s: float, beside_s: float) -> None:
        print(f"{what:34} {gb(took_s)}   {beside_s / took_s:6.1%} of the client's speed")

    def client_set(i: int) -> None:
        assert all(client.batch_set(names[i], place.regions[0], place.offsets, place.lengths))

    def client_get(i: int) -> None:
        assert all(client.batch_get(names[i], place.regions[0], place.offsets, place.lengths))

    set_s = median_s(client_set)
    get_s = median_s(client_get)
    print(f"a batch is {PAGES} pages, {batch_bytes >> 20} MiB")
    print(f"{'client, set':34} {gb(set_s)}")
    print(f"{'client, get here':34} {gb(get_s)}")
    line("batch_set_v1", median_s(lambda i: one.backend.batch_set_v1(keys[i], source)), set_s)
    line("batch_get_v1, here", median_s(lambda i: one.backend.batch_get_v1(keys[i], source)), get_s)
    target = pages.alloc(other.pool, PAGES)
    remote = other.backend._client
    there = other.backend._forms["kv"].target(keys[0], target)

    def remote_get(i: int) -> None:
        assert all(remote.batch_get(names[i], there.regions[0], there.offsets, there.lengths))

    remote_s = median_s(remote_get)
    print(f"{'client, get from the other node':34} {gb(remote_s)}")
    line(
        "batch_get_v1, from the other node",
        median_s(lambda i: other.backend.batch_get_v1(keys[i], target)),
        remote_s,
    )
    fresh = [pages.tokens(f"backup {i}", PAGES * 64) for i in range(ROUNDS)]
    line("controller, backup", median_s(lambda i: one.backup(fresh[i], source)), set_s)

    for name, node in (("here", one), ("on the other node", other)):
        asked = [key for batch in keys for key in batch][:1000]
        took = []
        for _ in range(300):
            began = time.perf_counter()
            assert node.backend.batch_exists(asked) == 1000
            took.append((time.perf_counter() - began) * 1e3)
        took.sort()
        print(f"exists of 1000 pages, {name:18} p50 {took[150]:.2f} ms, p99 {took[297]:.2f} ms")


if __name__ == "__main__":
    main()
