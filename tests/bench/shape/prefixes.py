"""Long prefixes that all engines need: at a fresh pair of daemons, and at a rate of requests."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from queue import SimpleQueue
from statistics import median

from bench.shape.result import Figure, Result, Shape
from bench.shape.stand_in import (
    LINK_BITS_S,
    PAGE_TOKENS,
    daemons,
    engines,
    factor,
    links,
    load_s,
    replay,
    serve,
)
from demo.worker import Worker
from demo.workload import Request
from peercached.sizing.models import Model

MODEL = Model("gpt-oss-120b", layers=36, values=2 * 8 * 64, kv_heads=8)
PREFIX_PAGES = 49_152 // PAGE_TOKENS
QUESTION_PAGES = 256 // PAGE_TOKENS
COMPUTE_TOKENS_PER_S = 49_152 / 1.695  # as published
PUBLISHED = {12: (9.02, 26.2, 11.49, 0.98), 30: (9.21, 81.2, 29.19, 0.73)}
PUBLISHED_PODS = 16

PAIR_PAGE_BYTES, PAIR_GETS = 128 << 10, 10
PAIR_SMALLER = factor(MODEL, "bf16", PAIR_PAGE_BYTES)

PAGE_BYTES = 16 << 10
SMALLER = factor(MODEL, "bf16", PAGE_BYTES)
NODES, PREFIXES_EACH = 4, 8
AT_ONCE = 8  # requests that a node loads for at the same time
RUN_S = 10.0
POOL_ROOM = 1.3


def prefix(number: int) -> tuple[int, ...]:
    return tuple(range(number * PREFIX_PAGES, (number + 1) * PREFIX_PAGES))


def pair(gets: int = PAIR_GETS) -> list[float]:
    """The time of each get of a prefix at the other one of two daemons that have just started."""
    with (
        daemons(2, page_bytes=PAIR_PAGE_BYTES, pages=POOL_ROOM * gets * PREFIX_PAGES) as started,
        engines(started, PAIR_PAGE_BYTES) as (setting, getting),
    ):
        asked = [Request(prefix(number)) for number in range(gets)]
        replay(asked, [setting])
        return [load_s(serve(getting, request)) for request in asked]


@dataclass
class Node:
    """An engine that computes one request after the other, and loads for some at a time."""

    workers: SimpleQueue[Worker]
    lock: threading.Lock
    free_s: float = 0.0
    """When it has computed all requests. Later than now: they wait."""

    def first_token_s(self, request: Request) -> float:
        """Serves it, and returns when it would be computed. Waits only for the loads."""
        worker = self.workers.get()
        began_s = time.monotonic()
        outcome = serve(worker, request)
        self.workers.put(worker)
        tokens = (outcome.asked_pages - outcome.hit_pages) * PAGE_TOKENS
        with self.lock:
            begin_s = max(began_s + load_s(outcome), self.free_s)
            self.free_s = begin_s + tokens / COMPUTE_TOKENS_PER_S
            return self.free_s


def arrivals(per_s: float, seconds: float) -> Iterator[tuple[float, Request]]:
    """At random times, in order: a Poisson process with exactly so many requests."""
    chance, own = random.Random(1), NODES * PREFIXES_EACH * PREFIX_PAGES
    for at_s in sorted(chance.uniform(0, seconds) for _ in range(round(per_s * seconds))):
        text = prefix(chance.randrange(NODES * PREFIXES_EACH))
        yield at_s, Request((*text, *range(own, own + QUESTION_PAGES)))
        own += QUESTION_PAGES


def rate(per_s: float, *, shared: bool, seconds: float = RUN_S) -> tuple[float, float]:
    """Requests per second of a node that were served, and the median latency."""
    with ExitStack() as stack:
        network = stack.enter_context(links(NODES, SMALLER))
        room = POOL_ROOM * PREFIXES_EACH * PREFIX_PAGES
        started = stack.enter_context(
            daemons(NODES, page_bytes=PAGE_BYTES, pages=room, shared=shared, network=network)
        )
        nodes = []
        for place, daemon in enumerate(started):
            workers = stack.enter_context(engines([daemon] * AT_ONCE, PAGE_BYTES))
            mine = range(place * PREFIXES_EACH, (place + 1) * PREFIXES_EACH)
            replay([Request(prefix(number)) for number in mine], workers[:1])
            nodes.append(Node(SimpleQueue(), threading.Lock()))
            for worker in workers:
                nodes[-1].workers.put(worker)
        return play(nodes, list(arrivals(NODES * per_s, seconds)))


def play(nodes: Sequence[Node], requests: Sequence[tuple[float, Request]]) -> tuple[float, float]:
    began_s = time.monotonic()
    with ThreadPoolExecutor(NODES * AT_ONCE) as threads:
        first = []
        for number, (at_s, request) in enumerate(requests):
            time.sleep(max(0.0, began_s + at_s - time.monotonic()))
            node = nodes[number % len(nodes)]
            first.append((at_s, threads.submit(node.first_token_s, request)))
    done = [(at_s, each.result() - began_s) for at_s, each in first]
    served = len(done) / max(end_s for _, end_s in done) / len(nodes)
    return served, median(end_s - at_s for at_s, end_s in done)


def measure(quick: bool) -> Result:
    gets = pair(3 if quick else PAIR_GETS)
    size = PREFIX_PAGES * PAIR_PAGE_BYTES
    figures = [
        Figure(
            f"get number {number} of a fresh pair",
            "0.55 s, computed 1.7 s; the first one pays for the session",
            f"{1e3 * took_s:.0f} ms for 1/{PAIR_SMALLER:.0f} of the bytes, "
            f"{size / took_s / 1e9:.1f} GB/s",
        )
        for number, took_s in ((1, gets[0]), (len(gets), gets[-1]))
    ]
    gain = ""
    for offered, (alone, alone_s, sharing, sharing_s) in PUBLISHED.items():
        per_s = offered / PUBLISHED_PODS
        seconds = 2.0 if quick else RUN_S
        one, ours = (rate(per_s, shared=shared, seconds=seconds) for shared in (False, True))
        figures.append(
            Figure(
                f"requests/s of a node at {per_s:.2f} offered",
                f"{alone / PUBLISHED_PODS:.2f} alone (latency {alone_s} s), "
                f"{sharing / PUBLISHED_PODS:.2f} shared ({sharing_s} s)",
                f"{one[0]:.2f} alone (latency {one[1]:.1f} s), {ours[0]:.2f} shared "
                f"({ours[1]:.2f} s)",
            )
        )
        gain = (
            f"At {per_s:.2f} requests/s a node, the first token comes after {ours[1]:.2f} s "
            f"instead of {one[1]:.1f} s. No router chose the nodes, and none named the holder."
        )
        if quick:
            break
    return Result(figures, gain)


SHAPE = Shape(
    title="prefixes: 48 K tokens shared by many requests, spread over all nodes",
    source="llm-d, guides/p2p-kv-cache-sharing: gpt-oss-120b, 16 H200, 128 prefixes, a router that "
    "names the pod with the pages",
    scaled=f"pair: KV {PAIR_SMALLER:.0f} times smaller, loopback; rates: "
    f"{NODES} nodes, {NODES * PREFIXES_EACH} prefixes, KV and links of "
    f"{LINK_BITS_S / 1e9:.0f} Gbit/s {SMALLER:.0f} times smaller, computing at the published "
    f"29,000 tokens/s, no decoding, for {RUN_S:.0f} s",
    measure=measure,
    has_links=True,
)
