"""Threads that move pages, so that the scheduler does not wait."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from peercache_client import Status
from peercache_client.tasks import Tasks


class Transfer(NamedTuple):
    """One job of vLLM: pages in the order of the prompt, and their slots."""

    job_id: int
    keys: Sequence[bytes]
    slots: Sequence[int]
    parent: bytes | None  # the page before the first one


class Outcome(NamedTuple):
    transfer: Transfer
    statuses: Sequence[Status]
    took_s: float  # without the wait for a thread


Move = Callable[[Sequence[bytes], Sequence[int], bytes | None], Sequence[Status]]


def make_mover(name: str, threads: int, move: Move) -> Tasks[Transfer, Outcome]:
    def run(transfer: Transfer) -> Outcome:
        began_s = time.monotonic()
        statuses = move(transfer.keys, transfer.slots, transfer.parent)
        return Outcome(transfer, statuses, time.monotonic() - began_s)

    def fail(transfer: Transfer) -> Outcome:
        return Outcome(transfer, [Status.error] * len(transfer.keys), 0.0)

    return Tasks(name, threads, run, fail)
