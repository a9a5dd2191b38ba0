"""Questions about long documents, and memory in private tiers or in one pool."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from bench import host_tier
from bench.hit_rate import conversations
from bench.shape.result import Figure, Result, Shape
from bench.shape.stand_in import (
    LINK_BITS_S,
    PAGE_TOKENS,
    daemons,
    different_pages,
    engines,
    factor,
    links,
    load_s,
    replay,
)
from demo.tally import Tally
from demo.workload import Documents
from peercached.sizing.models import KNOWN

INSTANCES = 2
DOCUMENTS, DOCUMENT_TOKENS = 50, 10_000
PAGE_BYTES = 64 << 10
SMALLER = factor(KNOWN["llama-3.1-8b"], "bf16", PAGE_BYTES)
COMPUTE_TOKENS_PER_S = 15_000
POOL_ROOM = 1.3
MEMORY, PRIVATE = 0.1, 0.75  # of all different blocks; the tiers' part of it


def rounds(documents: int) -> tuple[Tally, Tally]:
    """The first questions about all documents, and as many later ones."""
    texts = Documents(documents, document_blocks=DOCUMENT_TOKENS // PAGE_TOKENS)
    requests = list(islice(texts.requests(), 2 * documents))
    room = POOL_ROOM * different_pages(requests) / INSTANCES
    with (
        links(INSTANCES, SMALLER) as network,
        daemons(INSTANCES, page_bytes=PAGE_BYTES, pages=room, network=network) as started,
        engines(started, PAGE_BYTES) as turns,
    ):
        first = replay(requests[:documents], turns)
        return first, replay(requests[documents:], turns)


def first_token_s(tally: Tally) -> float:
    computed = (tally.asked_pages - tally.hit_pages) * PAGE_TOKENS / COMPUTE_TOKENS_PER_S
    return (computed + load_s(tally)) / tally.jobs


def tiers(chains: Sequence[tuple[int, ...]]) -> str:
    private, pool = (
        host_tier.replay(list(chains), MEMORY, part).hit_rate for part in (PRIVATE, 0.0)
    )
    return f"{private:.1%} -> {pool:.1%}"


def measure(quick: bool) -> Result:
    first, later = rounds(5 if quick else DOCUMENTS)
    before_s, after_s = (first_token_s(tally) for tally in (first, later))
    figures = [
        Figure(
            "first question about a document, and a later one",
            "4 times sooner to the first token, 5 times the round",
            f"{before_s:.2f} s and {after_s:.2f} s: {before_s / after_s:.1f} times sooner; hit "
            f"rate {later.hit_rate:.1%}, loads {1e3 * load_s(later) / later.jobs:.0f} ms",
        )
    ]
    if not quick:
        for name, chains in (
            ("documents", host_tier.documents()),
            ("conversations", conversations()),
        ):
            figures.append(
                Figure(
                    f"hit rate, {PRIVATE:.0%} of memory in tiers -> all in the pool, {name}",
                    "38.7 % -> 45.9 %",
                    tiers(chains) + " (calculated)",
                )
            )
    return Result(
        figures,
        f"The second question about a document is answered {before_s / after_s:.1f} times sooner, "
        "on any node.",
    )


SHAPE = Shape(
    title="documents: 50 of 10 K tokens, each asked about at 2 engines",
    source="LMCache's long documents (blog.lmcache.ai, 2026-01-21); SGLang, pull request 20535",
    scaled=f"KV and links of {LINK_BITS_S / 1e9:.0f} Gbit/s {SMALLER:.0f} times smaller; computing "
    f"is {COMPUTE_TOKENS_PER_S:,} tokens/s (assumed), no decoding; tiers with a memory of "
    f"{MEMORY:.0%} of all pages (tests/bench/host_tier.py)",
    measure=measure,
    has_links=True,
)
