"""Sessions of agents. Their turns go to all engines, one after the other."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from bench.shape.result import Figure, Result, Shape
from bench.shape.stand_in import (
    LINK_BITS_S,
    PAGE_TOKENS,
    daemons,
    different_pages,
    engines,
    factor,
    load_s,
    replay,
)
from demo.belady import best_hits_unbounded
from demo.workload import Request
from peercached.sizing.models import KNOWN

NODES = (2, 4, 8, 10)
SESSIONS = 1  # for each node
PAGE_BYTES = 16 << 10
SMALLER = factor(KNOWN["deepseek-v3"], "fp8", PAGE_BYTES)  # Kimi K2.5 has equal layers
COMPUTE_TOKENS_PER_S = 15_000
POOL_ROOM = 1.3  # all pools together, of all different pages


@dataclass(frozen=True)
class Sessions:
    """Sizes in tokens. All sessions begin with the same instructions."""

    count: int
    turns: int = 30
    common: int = 20_000
    first: int = 10_000
    turn: int = 2_048
    answer: int = 900

    def requests(self, seed: int = 1) -> list[Request]:
        """The turns of all sessions, mixed at random."""
        order = [session for session in range(self.count) for _ in range(self.turns)]
        random.Random(seed).shuffle(order)
        taken = [0] * self.count
        requests = []
        for session in order:
            requests.append(self._request(session, taken[session]))
            taken[session] += 1
        return requests

    def _request(self, session: int, turn: int) -> Request:
        """Only full pages can be reused."""
        prompt = self.common + self.first + turn * (self.answer + self.turn)
        ends = (0, prompt // PAGE_TOKENS, (prompt + self.answer) // PAGE_TOKENS)
        chain, answer = (
            tuple(self._page(session, place) for place in range(*span)) for span in pairwise(ends)
        )
        return Request(chain, answer)

    def _page(self, session: int, place: int) -> int:
        shared = place < self.common // PAGE_TOKENS
        return place if shared else (session + 1) << 32 | place


@dataclass(frozen=True)
class Found:
    hit_rate: float
    ideal: float
    got_bytes: int
    from_others: float
    """The share of these pages that came from another node."""
    load_s: float
    """Of a turn."""
    hit_tokens: float
    """Of a turn."""


def run(nodes: int, requests: Sequence[Request], *, shared: bool = True) -> Found:
    room = POOL_ROOM * different_pages(requests) / nodes
    with (
        daemons(nodes, page_bytes=PAGE_BYTES, pages=room, shared=shared) as started,
        engines(started, PAGE_BYTES) as turns,
    ):
        tally = replay(requests, turns)
        operations = [daemon.status()["operations"] for daemon in started]
    got = {name: sum(each[name] for each in operations) for name in ("get_local", "get_remote")}
    return Found(
        hit_rate=tally.hit_rate,
        ideal=best_hits_unbounded(requests) / tally.asked_pages,
        got_bytes=tally.got_bytes,
        from_others=got["get_remote"] / max(1, sum(got.values())),
        load_s=load_s(tally) / tally.jobs,
        hit_tokens=tally.hit_pages * PAGE_TOKENS / tally.jobs,
    )


def measure(quick: bool) -> Result:
    figures = []
    for nodes in NODES[: 1 if quick else None]:
        requests = Sessions(SESSIONS * nodes, turns=6 if quick else 30).requests()
        alone, found = (run(nodes, requests, shared=shared) for shared in (False, True))
        bytes_of_others = found.got_bytes * found.from_others * SMALLER / len(requests)
        link_s = bytes_of_others * 8 / LINK_BITS_S
        computed_s = found.hit_tokens / COMPUTE_TOKENS_PER_S
        figures += [
            Figure(
                f"hit rate, {nodes} nodes",
                "> 95 % at all sizes",
                f"{found.hit_rate:.2%}, ideal {found.ideal:.2%}, alone {alone.hit_rate:.1%}",
            ),
            Figure(
                f"loads, {nodes} nodes",
                "",
                f"{found.got_bytes / 1e9:.1f} GB, {found.from_others:.0%} of it from others; "
                f"{found.load_s * 1e3:.0f} ms a turn here. At full size, "
                f"{bytes_of_others / 1e9:.1f} GB a turn from others would take {link_s:.2f} s at "
                f"{LINK_BITS_S / 1e9:.0f} Gbit/s; computing all hits, {computed_s:.1f} s",
            ),
        ]
    return Result(
        figures,
        f"With {nodes} nodes and no router, {1 - found.hit_rate:.1%} of the prompts' tokens are "
        f"computed instead of {1 - alone.hit_rate:.1%}.",
    )


SHAPE = Shape(
    title="agents: 20 K tokens in common, 10 K of their own, 30 turns of 2,048 in and 900 out, "
    "round robin",
    source="vLLM and Mooncake Store, vllm.ai/blog, 2026-05-06: Kimi K2.5, 12 to 60 GB200; on a "
    "trace 1.7 % of hits alone, 92.2 % shared",
    scaled=f"{SESSIONS} session a node, not 75 on 12 GPUs; KV {SMALLER:.0f} times smaller; no KV "
    f"cache in the engine; computing is {COMPUTE_TOKENS_PER_S:,} tokens/s (assumed)",
    measure=measure,
)
