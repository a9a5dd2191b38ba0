"""The example router beside round robin, on the public trace: hit rate and time to first token.

    make bench-router ARGS="--requests 800 --trace FILE"

Each node has a real daemon and an engine without a model (harness.simulated_engine): it computes
one prompt at a time, at --tokens-per-s, and gets pages that other nodes have at
--fetched-tokens-per-s. Requests come as in the trace, --faster times as fast. A block of the
trace, 512 tokens, travels as one page of 16, so engines get rates 32 times smaller than they stand
for. The trace is Mooncake's (FAST'25, conversation). Without --trace, the workload is that of
`make demo`. Local hits are in the pool of the engine's own node.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import itertools
import json
import random
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from harness.cluster import Cluster
from harness.directory import wait_settled
from harness.routed import PAGES, Routed, free_port

from demo.workload import Conversations

PAGE_TOKENS = 16
BLOCK_TOKENS = 512
SCALE = BLOCK_TOKENS // PAGE_TOKENS


@dataclass
class Result:
    asked: int = 0  # tokens
    here: int = 0
    anywhere: int = 0
    failed: int = 0
    first_s: list[float] = field(default_factory=list)

    def row(self, name: str) -> str:
        first = sorted(self.first_s)
        p50, p99 = (first[min(len(first) - 1, int(len(first) * at))] for at in (0.5, 0.99))
        shares = f"{self.here / self.asked:>11.1%}{self.anywhere / self.asked:>11.1%}"
        return f"{name:<12}{shares}{1000 * p50:>10.0f}{1000 * p99:>10.0f}{self.failed:>8}"


def from_trace(path: Path) -> Iterator[tuple[float, list[int]]]:
    """Seconds since the start, and the blocks of the prompt."""
    content = path.read_bytes()
    if path.suffix == ".gz":
        content = gzip.decompress(content)
    for line in content.splitlines():
        request = json.loads(line)
        yield request["timestamp"] / 1000, request["hash_ids"]


def made_up(per_s: float) -> Iterator[tuple[float, list[int]]]:
    at_s, chance = 0.0, random.Random(1)
    for request in Conversations().requests():
        at_s += chance.expovariate(per_s)
        yield at_s, list(request.chain)


def tokens_of(blocks: list[int]) -> list[int]:
    return [block * PAGE_TOKENS + place for block in blocks for place in range(PAGE_TOKENS)]


async def replay(url: str, requests: list[tuple[float, list[int]]], faster: float) -> Result:
    result = Result()
    began = time.monotonic()

    async def one(session: aiohttp.ClientSession, blocks: list[int]) -> None:
        sent = time.monotonic()
        try:
            async with session.post(
                f"{url}/v1/completions", json={"prompt": tokens_of(blocks)}
            ) as r:
                r.raise_for_status()
                usage = (await r.json())["usage"]
        except aiohttp.ClientError:
            result.failed += 1
            return
        result.first_s.append(time.monotonic() - sent)
        cached = usage["prompt_tokens_details"]
        result.asked += usage["prompt_tokens"]
        result.here += cached["cached_here_tokens"]
        result.anywhere += cached["cached_tokens"]

    timeout = aiohttp.ClientTimeout(total=None)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
        tasks = []
        for at_s, blocks in requests:
            await asyncio.sleep(max(0.0, began + at_s / faster - time.monotonic()))
            tasks.append(asyncio.ensure_future(one(session, blocks)))
        await asyncio.gather(*tasks)
    return result


def measure(strategy: str, options: argparse.Namespace, requests: list[Any]) -> Result:
    rates = [
        f"--tokens-per-s={options.tokens_per_s * options.faster / SCALE}",
        f"--fetched-tokens-per-s={options.fetched_tokens_per_s * options.faster / SCALE}",
    ]
    pages = {**PAGES, "page_size": PAGE_TOKENS}
    each = [{"router-port": free_port()} for _ in range(options.nodes)]  # for hints
    cluster = Cluster(options.nodes, options={"pool-size": f"{options.pool_mib}MiB"}, each=each)
    with tempfile.TemporaryDirectory() as folder, cluster:
        cluster.start(60)
        wait_settled(cluster.daemons, 60)
        with Routed(
            Path(folder),
            cluster.daemons,
            pages=pages,
            engine_options=rates,
            strategy=strategy,
            prefix_timeout_ms=50,
        ) as routed:
            return asyncio.run(replay(routed.url, requests, options.faster))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trace", type=Path)
    parser.add_argument("--requests", type=int, default=600)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--faster", type=float, default=4.0)
    parser.add_argument("--tokens-per-s", type=float, default=15_000)
    parser.add_argument("--fetched-tokens-per-s", type=float, default=100_000)
    parser.add_argument("--pool-mib", type=int, default=64)
    options = parser.parse_args()
    source = from_trace(options.trace) if options.trace else made_up(3.3)
    requests = list(itertools.islice(source, options.requests))
    blocks = sum(len(chain) for _, chain in requests)
    print(
        f"{len(requests)} requests, {blocks * BLOCK_TOKENS / len(requests):.0f} tokens each, "
        f"{options.nodes} nodes, {options.tokens_per_s:.0f} tokens/s computed and "
        f"{options.fetched_tokens_per_s:.0f} fetched; times are {options.faster:g} times shorter"
    )
    print(f"{'':<12}{'local hits':>11}{'all hits':>11}{'p50 ms':>10}{'p99 ms':>10}{'failed':>8}")
    for name in ("round-robin", "prefix"):
        print(measure(name, options, requests).row(name), flush=True)


if __name__ == "__main__":
    main()
