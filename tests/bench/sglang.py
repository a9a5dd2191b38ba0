"""Speed through SGLang's controller, compared with the client alone: `make bench-sglang`.

Batches of 128 pages, MHA page_first, on one node and between two. A turn does each step once. The
load of the machine varies from turn to turn, so ratios are taken within a turn, and the output
shows medians over the turns.
"""

# /// script
# [tool.peercached]
# engine = "sglang"
# ///

import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import on_cpu
import pages
import torch
from controller_node import ControllerNode, Shape
from harness.cluster import Cluster
from harness.fixtures import FAST
from released import Released

PAGES = 128
PAGE_TOKENS = 64
TURNS = 15
EXISTS_CALLS = 300
SHAPE = Shape(page_size=PAGE_TOKENS, layers=8, heads=8, tokens=PAGE_TOKENS * PAGES)
# 256 KiB and 2 MiB a page, half of it K: small for a current model, and common.
SHAPES = [SHAPE.but(head_dim=dim, v_head_dim=dim) for dim in (16, 128)]
BATCH = "batch_set_v1", "batch_get_v1, here", "batch_get_v1, other node"


Step = tuple[str, Callable[[], object]]


class Ours:
    """`seconds` sums the time in a backend's calls. The rest of a controller's time is SGLang's
    queues, threads and allocation."""

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
    """Seconds of each step of one turn: in all, with the GIL possibly held, and within the
    backend."""

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
    # torch's threads spin between SGLang's tensor operations, on the daemons' processors.
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


class Place:
    """The memory that all steps read a node's pages into. A prefetch allocates its own, but gets
    just these pages, because the other half of the pool is taken."""

    def __init__(self, node: ControllerNode, keys: list[str]) -> None:
        self.node = node
        self.client = node.backend._client
        self._keys = keys
        self.use(pages.alloc(node.pool, PAGES))

    def use(self, indices: Any) -> None:
        self.indices = indices
        self.pieces = self.node.backend._forms["kv"].target(self._keys, indices)

    def read(self) -> Any:
        return pages.read(self.node.pool, self.indices)

    def lend(self) -> None:
        self.node.pool.free(self.indices)


def measure_moves(one: ControllerNode, other: ControllerNode) -> list[Turn]:
    source = pages.alloc(one.pool, PAGES)
    pages.alloc(other.pool, PAGES)
    written = pages.fill(one.pool, source, "bench")
    tokens = [pages.tokens(f"prompt {i}", PAGES * PAGE_TOKENS) for i in range(2)]
    keys, more = (one.controller.get_hash_str(each, None, page_size=PAGE_TOKENS) for each in tokens)
    client = one.backend._client
    form = one.backend._forms["kv"]
    from_here = form.source(keys, source)
    names = [key.decode() + ".client" for key in from_here.keys]
    here, there = Place(one, keys), Place(other, keys)

    def client_set() -> bool:
        place = from_here.regions[0], from_here.offsets, from_here.lengths
        return all(client.batch_set(names, *place))

    def backup() -> bool:
        one.controller.write_storage(source, tokens[1], more)
        return one.controller.ack_backup_queue.get(timeout=30) is not None

    def client_get(place: Place, ask: bool) -> bool:
        pieces = place.pieces
        if ask and place.client.batch_exists(names) != len(names):
            return False
        return all(place.client.batch_get(names, pieces.regions[0], pieces.offsets, pieces.lengths))

    def get_v1(place: Place) -> bool:
        return all(place.node.backend.batch_get_v1(keys, place.indices))

    def prefetch(place: Place) -> bool:
        operation = place.node.prefetch(tokens[1])
        place.indices = operation.host_indices
        return bool(operation.completed_tokens == len(tokens[1]))

    sets: list[Step] = [
        ("client, set", client_set),
        ("batch_set_v1", lambda: all(one.backend.batch_set_v1(keys, source))),
        ("controller, backup", backup),
    ]

    def gets(place: Place, where: str) -> list[Step]:
        return [
            (f"client, get {where}", lambda: client_get(place, ask=False)),
            (f"batch_get_v1, {where}", lambda: get_v1(place)),
            (f"client, exists and get {where}", lambda: client_get(place, ask=True)),
            (f"controller, prefetch {where}", lambda: prefetch(place)),
        ]

    def forget() -> None:
        client.remove([*names, *from_here.keys, *form.source(more, source).keys])

    ours = Ours(one.backend, other.backend)
    turns = []
    for number in range(TURNS):
        turn = Turn(ours)
        # Every other turn runs backwards, because a later step finds warmer caches.
        way = -1 if number % 2 else 1
        for name, action in sets[::way]:
            forget()  # so that all sets use the same slots
            turn.step(name, action)
        for _, action in sets:
            action()
        for place, where in ((here, "here"), (there, "other node")):
            for name, action in gets(place, where)[::way]:
                if "prefetch" in name:
                    place.lend()
                turn.step(name, action)
                place.use(place.indices)
                assert place.read() == written, name
        turns.append(turn)
    one.pool.free(source)
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
    """Asks on the main thread, like a scheduler, so the daemon keeps reported pages for 5 s."""
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
