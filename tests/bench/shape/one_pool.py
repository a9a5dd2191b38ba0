"""Eight workers of a host with one pool, or with an eighth of it each; and what outlives them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice

from harness.cluster import Daemon
from harness.warm_pools import some_pool_files

from bench.shape.result import Figure, Result, Shape
from bench.shape.stand_in import (
    WrongBytes,
    daemons,
    different_pages,
    engines,
    factor,
    replay,
    serve,
)
from demo.belady import best_hits_unbounded
from demo.tally import Tally
from demo.worker import Worker
from demo.workload import Conversations, Request
from peercached.sizing.models import KNOWN

WORKERS = 8
PAGE_BYTES = 16 << 10
POOL_SHARE = 0.15  # of all different pages
REQUESTS = 4000
KEPT_PAGE_BYTES, KEPT_PAGES = 128 << 10, 8192


def conversations(count: int) -> list[Request]:
    return list(islice(Conversations().requests(), count))


def host(requests: Sequence[Request], pages: float, *, shared: bool) -> Tally:
    """Requests go to all workers in turn. `pages`: of all pools together."""
    pools = 1 if shared else WORKERS
    with (
        daemons(pools, page_bytes=PAGE_BYTES, pages=pages / pools, shared=shared) as started,
        engines(list(started) * (WORKERS // pools), PAGE_BYTES) as turns,
    ):
        return replay(requests, turns)


def ranks(requests: Sequence[Request], pages: float, *, once: bool) -> float:
    """The hit rate, if all ranks need the same pages. A rank that misses a page makes a miss for
    all. `once`: the first rank sets pages for all, as with SGLang and vLLM; else each sets its own.
    """
    salts = [""] * WORKERS if once else [f"rank {rank}" for rank in range(WORKERS)]
    hits = asked = 0
    with (
        daemons(1, page_bytes=PAGE_BYTES, pages=pages) as started,
        engines(started, PAGE_BYTES, salts) as workers,
    ):
        for request in requests:
            first, *others = workers
            found = serve(first, request).hit_pages
            rest = Request(request.chain[:found]) if once else request
            hits += min([found, *(serve(worker, rest).hit_pages for worker in others)])
            asked += len(request.chain)
    return hits / asked


def restarts(pages: int) -> tuple[float, float]:
    """Seconds from the start to the first page of a new worker, and of a daemon that was killed."""
    everything = Request(tuple(range(pages)))
    first_page = Request(everything.chain[:1])
    with some_pool_files() as files:
        options = {"pool-file": str(files[0])}
        with daemons(1, page_bytes=KEPT_PAGE_BYTES, pages=2 * pages, options=options) as (daemon,):
            with engine(daemon) as worker:
                serve(worker, everything)
            began_s = time.monotonic()
            with engine(daemon) as worker:
                hit(worker, first_page)
                worker_s = time.monotonic() - began_s
            daemon.kill()
            began_s = time.monotonic()
            daemon.start()
            daemon.wait_ready()
            with engine(daemon) as worker:
                hit(worker, first_page)
                daemon_s = time.monotonic() - began_s
                hit(worker, everything)
    return worker_s, daemon_s


@contextmanager
def engine(daemon: Daemon) -> Iterator[Worker]:
    with engines([daemon], KEPT_PAGE_BYTES) as (one,):
        yield one


def hit(worker: Worker, request: Request) -> None:
    outcome = serve(worker, request)
    if outcome.hit_pages < len(request.chain):
        raise WrongBytes(f"only {outcome.hit_pages} of {len(request.chain)} pages were kept")


def measure(quick: bool) -> Result:
    requests = conversations(REQUESTS // 8 if quick else REQUESTS)
    pool = POOL_SHARE * different_pages(requests)
    apart, together = (host(requests, pool, shared=shared) for shared in (False, True))
    for_ranks = requests[: len(requests) // 8]
    copies, once = (ranks(for_ranks, pool, once=once) for once in (False, True))
    kept_pages = KEPT_PAGES // 32 if quick else KEPT_PAGES
    worker_s, daemon_s = restarts(kept_pages)
    computed = [tally.asked_pages - tally.hit_pages for tally in (apart, together)]
    kept = f"{kept_pages * KEPT_PAGE_BYTES / (1 << 30):.2g} GiB"
    ideal, ideal_of_ranks = (
        best_hits_unbounded(some) / sum(len(request.chain) for request in some)
        for some in (requests, for_ranks)
    )
    return Result(
        [
            Figure(
                f"hit rate, {WORKERS} pools and one of the same size",
                "11.8 % and 52.4 %; 1.56 times the requests/s",
                f"{apart.hit_rate:.1%} and {together.hit_rate:.1%}, ideal {ideal:.1%}; "
                f"{computed[0] / computed[1]:.2f} times the requests/s, if computing prompts is "
                "the limit",
            ),
            Figure(
                f"hit rate, MLA pages of TP {WORKERS} stored per rank and once",
                "65.2 % and 97.2 %; 1.72 times the requests/s",
                f"{copies:.1%} and {once:.1%}, ideal {ideal_of_ranks:.1%}",
            ),
            Figure(
                f"worker restarted, to its first page of {kept}",
                "vLLM ready after 33.2 s, with a pool of its own 71.4 s",
                f"{1e3 * worker_s:.0f} ms, besides the engine's own start",
            ),
            Figure(
                f"daemon killed and restarted with a pool file, to the first page of {kept}",
                "",
                f"{daemon_s:.1f} s; all pages were there",
            ),
        ],
        f"With the same memory, one daemon serves {together.hit_rate:.0%} of the prompts' tokens, "
        f"where {WORKERS} engines by themselves find {apart.hit_rate:.0%}; and it keeps them when "
        "engines restart.",
    )


SHAPE = Shape(
    title=f"one pool: {WORKERS} workers of one host",
    source="PegaFlow, vllm.ai/blog, 2026-05-18: 8 x Qwen3-8B, and DeepSeek-V3.2 with TP 8; 500 GiB",
    scaled=f"made-up conversations (theirs are not published); a pool of {POOL_SHARE:.0%} of all "
    f"pages; KV {factor(KNOWN['qwen3-8b'], 'bf16', PAGE_BYTES):.0f} and "
    f"{factor(KNOWN['deepseek-v3'], 'bf16', PAGE_BYTES):.0f} times smaller",
    measure=measure,
)
