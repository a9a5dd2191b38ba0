"""The stand-in engine: it computes nothing, but its pages are real.

A page holds the KV cache of 64 tokens, divided by a factor. The engine asks for a prompt's pages,
gets them, compares every byte, and sets the rest (demo/worker.py). Computing takes no time. Where a
shape needs that time, it is tokens divided by a stated rate.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from harness.cluster import Cluster, Daemon
from harness.directory import wait_settled
from harness.netns import Network

from demo.slots import slot_bytes
from demo.tally import Tally
from demo.worker import NAMESPACE, Outcome, Worker
from demo.workload import Request
from peercache_bench.daemons import Options
from peercache_client import Client
from peercached.sizing.models import Model

PAGE_TOKENS = 64
LINK_BITS_S = 100e9  # at full size
BATCH_PAGES = 128
CALL_S = START_S = 60.0


class WrongBytes(Exception):
    """A get returned a page with other bytes, or the client raised."""


def factor(model: Model, dtype: str, page_bytes: int) -> float:
    """How many times smaller our page is than one of the model."""
    return model.bytes_per_token(dtype) * PAGE_TOKENS / page_bytes


@contextmanager
def links(nodes: int, smaller: float) -> Iterator[Network]:
    """Hosts with slow links: LINK_BITS_S, divided as pages are. So a load takes as long as at full
    size, if the link is the limit."""
    with Network([chr(ord("a") + place) for place in range(nodes)]) as network:
        for place in range(nodes):
            network.slow_down(chr(ord("a") + place), int(LINK_BITS_S / smaller))
        yield network


@contextmanager
def daemons(
    nodes: int,
    *,
    page_bytes: int,
    pages: float,
    shared: bool = True,
    network: Network | None = None,
    options: Options | None = None,
) -> Iterator[Sequence[Daemon]]:
    """A cluster of so many daemons, or so many clusters of one. Each pool has so many pages."""
    size = math.ceil(pages) * slot_bytes(page_bytes)
    with Cluster(nodes, options={"pool-size": size, **(options or {})}) as cluster:
        if network is not None:
            network.place(cluster)
        if not shared:
            for daemon in cluster.daemons:
                daemon.heads = [daemon.address]
        for daemon in cluster.daemons:
            daemon.start()
        for daemon in cluster.daemons:
            daemon.wait_ready(START_S)
        if shared:
            wait_settled(cluster.daemons, START_S)
        yield cluster.daemons


@contextmanager
def engines(
    at: Iterable[Daemon], page_bytes: int, salts: Sequence[str] = ("",)
) -> Iterator[list[Worker]]:
    """For each daemon and salt, an engine. Engines with equal salts have equal keys."""
    with ExitStack() as stack:
        yield [
            Worker(
                stack.enter_context(Client(str(daemon.socket_path), NAMESPACE, timeout_s=CALL_S)),
                page_bytes=page_bytes,
                batch_pages=BATCH_PAGES,
                salt=salt,
            )
            for daemon in at
            for salt in salts
        ]


def serve(engine: Worker, request: Request) -> Outcome:
    outcome = engine.do(request.chain, request.answer)
    if outcome.wrong or outcome.error:
        raise WrongBytes("; ".join([outcome.error, *outcome.wrong]))
    return outcome


def replay(requests: Iterable[Request], turns: Sequence[Worker]) -> Tally:
    """The requests one after the other, each at the next engine."""
    tally = Tally()
    for number, request in enumerate(requests):
        tally.add(serve(turns[number % len(turns)], request))
    return tally


def load_s(of: Tally | Outcome) -> float:
    """Time of all lookups and gets, without the comparison of the bytes."""
    return sum(of.exists_s) + sum(of.get_s)


def different_pages(requests: Iterable[Request]) -> int:
    return len({block for request in requests for block in (*request.chain, *request.answer)})
