"""Speed through SGLang's controller, beside the client alone: `make bench-sglang`.

Batches of 128 pages, MHA page_first, on one node and between two. A turn does everything once, one
after the other; shares are taken within a turn, and the median turn is shown: the machine may be
busy, and differently so from turn to turn.
"""

import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import on_cpu
import pages
import torch
from controller_node import ControllerNode, Shape
from harness.fixtures import FAST
from released import Released

from peercached.demo.cluster import Cluster

PAGES = 128
PAGE_TOKENS = 64
TURNS = 15
EXISTS_CALLS = 300
SHAPE = Shape(page_size=PAGE_TOKENS, layers=8, heads=8, tokens=PAGE_TOKENS * PAGES)
# 256 KiB and 2 MiB a page, half of it K: small for a model of today, and common.
SHAPES = [SHAPE.but(head_dim=dim, v_head_dim=dim) for dim in (16, 128)]
BATCH = "batch_set_v1", "batch_get_v1, here", "batch_get_v1, other node"


Step = tuple[str, Callable[[], object]]


class Ours:
    """`seconds` grows by what a backend's calls take: of a controller's time the part that is not
    SGLang's queues, threads and allocation."""

    def __init__(self, *backends: Any) -> None:
        self.seconds = 0.0
        for backend in backends:
            for name in ("batch_exists", "batch_get_v1", "batch_set_v1"):
                setattr(backend, name, self._timed(getattr(backend, name)))

    def _timed(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any) -> Any:
            began = time.perf_counter()
            answer = method(*arguments)
            self.seconds += time.perf_counter() - began
            return answer

        return timed


class Turn:
    """Seconds that each step of one turn took, and for how many of them the GIL may have been
    held; of those with a backend also how many were spent in it."""

    def __init__(self, ours: Ours) -> None:
        self.took_s: dict[str, float] = {}
        self.held_s: dict[str, float] = {}
        self.ours_s: dict[str, float] = {}
        self._ours = ours

    def step(self, name: str, action: Callable[[], object]) -> None:
        self._ours.seconds = 0.0
        with Released() as released:
            began = time.perf_counter()
            done = action()
            self.took_s[name] = time.perf_counter() - began
        assert done, name
        self.held_s[name] = self.took_s[name] - released.seconds
        self.ours_s[name] = self._ours.seconds


def main() -> None:
    on_cpu.install()
    # Its threads spin between SGLang's operations on tensors, on the daemons' processors.
    torch.set_num_threads(1)
    with Cluster(2, options={**FAST, "pool-size": "2GiB"}) as cluster:
        cluster.start(timeout_s=120)
        for shape in SHAPES:
            with (
                ControllerNode(cluster[0].socket_path, shape, model="bench") as one,
                ControllerNode(cluster[1].socket_path, shape, model="bench") as other,
            ):
                moved = measure_moves(one, other)
                show(moved, PAGES * one.pool.size_per_token * PAGE_TOKENS)
                if shape is SHAPES[0]:
                    measure_exists(one, other)


def measure_moves(one: ControllerNode, other: ControllerNode) -> list[Turn]:
    source, target = pages.alloc(one.pool, PAGES), pages.alloc(other.pool, PAGES)
    written = pages.fill(one.pool, source, "bench")
    client, far = one.backend._client, other.backend._client
    tokens = [pages.tokens(f"prompt {i}", PAGES * PAGE_TOKENS) for i in range(2)]
    keys, more = (one.controller.get_hash_str(each, None, page_size=PAGE_TOKENS) for each in tokens)
    form, far_form = one.backend._forms["kv"], other.backend._forms["kv"]
    here, there = form.source(keys, source), far_form.target(keys, target)
    names = [key.decode() + ".client" for key in here.keys]

    def client_get(node: Any, place: Any, ask: bool = False) -> bool:
        if ask and node.batch_exists(names) != len(names):
            return False
        return all(node.batch_get(names, place.regions[0], place.offsets, place.lengths))

    def backup() -> bool:
        one.controller.write_storage(source, tokens[1], more)
        return one.controller.ack_backup_queue.get(timeout=30) is not None

    def prefetch(node: ControllerNode) -> bool:
        operation = node.prefetch(tokens[1])
        prefetched.append((node.pool, operation.host_indices))
        return bool(operation.completed_tokens == len(tokens[1]))

    prefetched: list[tuple[Any, Any]] = []
    ours = Ours(one.backend, other.backend)
    sets: list[Step] = [
        (
            "client, set",
            lambda: all(client.batch_set(names, here.regions[0], here.offsets, here.lengths)),
        ),
        ("batch_set_v1", lambda: all(one.backend.batch_set_v1(keys, source))),
        ("controller, backup", backup),
    ]
    gets: list[Step] = [
        ("client, get here", lambda: client_get(client, here)),
        ("batch_get_v1, here", lambda: all(one.backend.batch_get_v1(keys, source))),
        ("client, exists and get here", lambda: client_get(client, here, ask=True)),
        ("controller, prefetch here", lambda: prefetch(one)),
        ("client, get other node", lambda: client_get(far, there)),
        ("batch_get_v1, other node", lambda: all(other.backend.batch_get_v1(keys, target))),
        ("client, exists and get other", lambda: client_get(far, there, ask=True)),
        ("controller, prefetch other node", lambda: prefetch(other)),
    ]
    turns = []
    for number in range(TURNS):
        turn = Turn(ours)
        # Every other turn backwards: whoever comes second finds warmer caches.
        for steps in (sets, gets):
            for name, action in steps[:: -1 if number % 2 else 1]:
                turn.step(name, action)
        assert pages.read(other.pool, target) == written
        for pool, indices in prefetched:
            assert pages.read(pool, indices) == written
            pool.free(indices)
        prefetched.clear()
        turns.append(turn)
        assert all(client.remove([*names, *here.keys, *form.source(more, source).keys]))
    return turns[2:]


def show(turns: list[Turn], batch_bytes: int) -> None:
    print(f"a batch is {PAGES} pages, {batch_bytes >> 20} MiB; medians of {len(turns)} turns")
    base = ""
    for name in turns[0].took_s:
        base = name if name.startswith("client") else base
        took_s = statistics.median(turn.took_s[name] for turn in turns)
        line = f"{name:32} {took_s * 1e3:7.2f} ms {batch_bytes / took_s / 1e9:6.2f} GB/s"
        if name != base:
            speed = statistics.median(turn.took_s[base] / turn.took_s[name] for turn in turns)
            line += f"   {speed:4.0%} of the client's speed"
        if name in BATCH:
            held = statistics.median(turn.held_s[name] / turn.took_s[name] for turn in turns)
            line += f", GIL held {held:.1%}"
        elif name != base:
            ours = statistics.median(turn.ours_s[name] / turn.took_s[name] for turn in turns)
            line += f", {ours:.0%} of its time in the backend"
        print(line)


def measure_exists(one: ControllerNode, other: ControllerNode) -> None:
    """Asked from this, the main thread, as by a scheduler: what is reported is kept for 5 s."""
    tokens = pages.tokens("exists", 1000 * PAGE_TOKENS)
    keys = one.controller.get_hash_str(tokens, None, page_size=PAGE_TOKENS)
    source = pages.alloc(one.pool, PAGES)
    for begin in range(0, len(keys), PAGES):
        some = keys[begin : begin + PAGES]
        assert all(one.backend.batch_set_v1(some, source[: len(some) * PAGE_TOKENS]))
    took: dict[str, list[float]] = defaultdict(list)
    late = 0
    for _ in range(EXISTS_CALLS):
        for place, node in (("here", one), ("other node", other)):
            form, client = node.backend._forms["kv"], node.backend._client
            for count in (64, 128, 1000):
                asked = keys[:count]
                began = time.perf_counter()
                if node.backend.batch_exists(asked) != count:
                    late += 1
                    continue
                took[f"{count} pages, {place}"].append(time.perf_counter() - began)
            names = [key + suffix for key in keys[:128] for suffix in form.suffixes]
            began = time.perf_counter()
            assert client.batch_exists(names) == len(names)
            took[f"128 pages, {place}, not kept"].append(time.perf_counter() - began)
    for name, each in took.items():
        each.sort()
        p50, p99 = (each[int(len(each) * share)] * 1e3 for share in (0.5, 0.99))
        print(f"exists of {name:32} p50 {p50:.2f} ms, p99 {p99:.2f} ms")
    print(f"without an answer in time (50 ms): {late}")


if __name__ == "__main__":
    main()
