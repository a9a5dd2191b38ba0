"""Conversations that outgrow the memory, with a disk and without."""

from __future__ import annotations

import random
import tempfile
from contextlib import ExitStack

from harness.disks import wait_written

from bench.shape.result import Figure, Result, Shape
from bench.shape.stand_in import PAGE_TOKENS, daemons, engines, factor, load_s, replay
from demo.tally import Tally
from demo.workload import Request
from peercached.sizing.models import KNOWN

CLIENTS, ROUNDS, ROUND_TOKENS = 20, 10, 4096
MODEL = KNOWN["qwen3-8b"]
POOL_TOKENS = 80e9 / MODEL.bytes_per_token("bf16")
PAGE_BYTES = 64 << 10
DISK = "4GiB"
AT_ONCE = 5
SHOWN = (6, 7, 8, 10)


def requests_of(number: int, chance: random.Random, smaller: int) -> list[Request]:
    """One round, numbered from 1: the whole history of each client, in random order."""
    clients = list(range(CLIENTS))
    chance.shuffle(clients)
    length = number * ROUND_TOKENS // PAGE_TOKENS // smaller
    return [Request(tuple(client << 32 | place for place in range(length))) for client in clients]


def run(*, disk: bool, smaller: int = 1) -> list[Tally]:
    """The rounds. `smaller`: this many times fewer pages, also of the pool."""
    chance = random.Random(1)
    rounds = []
    with ExitStack() as stack:
        options: dict[str, str | int] = {}
        if disk:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            options = {"disk-enabled": True, "disk-path": folder, "disk-size": DISK}
        room = POOL_TOKENS / PAGE_TOKENS / smaller
        (daemon,) = stack.enter_context(
            daemons(1, page_bytes=PAGE_BYTES, pages=room, options=options)
        )
        turns = stack.enter_context(engines([daemon], PAGE_BYTES))
        for number in range(1, ROUNDS + 1):
            rounds.append(Tally())
            requests = requests_of(number, chance, smaller)
            for at in range(0, CLIENTS, AT_ONCE):
                rounds[-1] += replay(requests[at : at + AT_ONCE], turns)
                if disk:  # real rounds take so long that the disk keeps up
                    wait_written(daemon)
    return rounds


def measure(quick: bool) -> Result:
    smaller = 16 if quick else 1
    without, kept = (run(disk=disk, smaller=smaller) for disk in (False, True))
    published = {6: "> 80 % and > 80 %", 7: "36 % and > 84 %", 8: "(none) and > 84 %"}
    figures = [
        Figure(
            f"round {number}, without and with disk",
            published.get(number, ""),
            f"{without[number - 1].hit_rate:.1%} and {kept[number - 1].hit_rate:.1%}, ideal "
            f"{1 - 1 / number:.1%}; loads {1e3 * load_s(kept[number - 1]) / CLIENTS:.0f} ms each",
        )
        for number in SHOWN
    ]
    computed = [
        sum(tally.asked_pages - tally.hit_pages for tally in rounds) for rounds in (without, kept)
    ]
    return Result(
        figures,
        f"With a disk, engines compute {computed[1] / computed[0]:.0%} of the tokens that they "
        "compute without one.",
    )


SHAPE = Shape(
    title="disk: 20 clients, 10 rounds of 4,096 tokens each, a pool of 80 GB",
    source="Mooncake, docs/source/performance/mooncake/ssd-offload-benchmark-results.md: Qwen3-8B, "
    "one A100",
    scaled=f"KV and pool {factor(MODEL, 'bf16', PAGE_BYTES):.0f} times smaller; no KV cache in the "
    "engine; a round waits for the disk",
    measure=measure,
)
