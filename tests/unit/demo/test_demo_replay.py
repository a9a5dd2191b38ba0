"""The replay's order and arithmetic, with fake workers in this process."""

import asyncio
import math
import random
from io import StringIO
from itertools import islice
from typing import Any, cast

import pytest
from rich.console import Console

from demo import report
from demo.belady import best_hits_unbounded
from demo.replay import Progress, Replay, WorkerDied, WorkerProcess
from demo.tally import Tally, percentile
from demo.worker import Outcome
from demo.workload import Conversations, Request
from peercached.admin.status import Status


class PerfectCache:
    """A worker over a cache that never forgets, with random delays."""

    def __init__(self, pages: set[int], chance: random.Random) -> None:
        self.pages = pages
        self.chance = chance
        self.turn = asyncio.Lock()

    async def do(self, request: Request) -> Outcome:
        async with self.turn:
            hits = 0
            for block in request.chain:
                if block not in self.pages:
                    break
                hits += 1
            for _ in range(self.chance.randrange(5)):
                await asyncio.sleep(0)
            rest = {*request.chain[hits:], *request.answer}
            self.pages |= rest
            return Outcome(
                asked_pages=len(request.chain),
                promised_pages=hits,
                hit_pages=hits,
                set_pages=len(rest),
                get_s=[0.001],
            )


def replay_with(workers: list[Any], on_progress: Any = lambda _: None) -> Replay:
    prefill, decode = workers[: len(workers) // 2], workers[len(workers) // 2 :]
    return Replay(
        cast(list[WorkerProcess], prefill),
        cast(list[WorkerProcess], decode),
        seed=1,
        on_progress=on_progress,
    )


def sum_of(tallies: list[Tally]) -> Tally:
    total = Tally()
    for tally in tallies:
        total += tally
    return total


def perfect_workers(seed: int) -> list[PerfectCache]:
    pages: set[int] = set()
    return [PerfectCache(pages, random.Random(seed * 10 + n)) for n in range(6)]


@pytest.mark.parametrize("seed", range(5))
def test_unbounded_cache_reaches_the_best_hit_rate_with_any_timing(
    seed: int,
) -> None:
    requests = list(islice(Conversations(seed=seed).requests(), 300))
    replay = replay_with(perfect_workers(seed))
    asyncio.run(replay.run(requests))
    assert replay.taken == requests
    prefill, decode = sum_of(replay.phases[0].prefill), sum_of(replay.phases[0].decode)
    assert prefill.hit_pages == best_hits_unbounded(requests)
    assert decode.hit_rate == 1.0


def test_requests_overlap() -> None:
    most = 0

    class Counting(PerfectCache):
        running = 0

        async def do(self, request: Request) -> Outcome:
            nonlocal most
            Counting.running += 1
            most = max(most, Counting.running)
            outcome = await super().do(request)
            Counting.running -= 1
            return outcome

    pages: set[int] = set()
    replay = replay_with([Counting(pages, random.Random(n)) for n in range(6)])
    asyncio.run(replay.run([Request((n,)) for n in range(100)]))
    assert most > 1


def test_a_dead_worker_ends_the_replay() -> None:
    class Dead(PerfectCache):
        async def do(self, request: Request) -> Outcome:
            raise WorkerDied("worker x ended")

    replay = replay_with([Dead(set(), random.Random(1)) for _ in range(6)])
    with pytest.raises(WorkerDied):
        asyncio.run(replay.run(Conversations().requests()))


def test_progress_comes_to_the_sums_at_the_end() -> None:
    seen: list[Progress] = []
    replay = replay_with(perfect_workers(1), seen.append)
    requests = list(islice(Conversations().requests(), 50))
    asyncio.run(replay.run(requests))
    assert seen[-1].requests == 50
    assert seen[-1].hit_rate == sum_of(replay.phases[0].prefill).hit_rate


def test_replay_splits_outcomes_between_phases() -> None:
    replay = replay_with(perfect_workers(1))
    replay.begin_phase("before")

    async def before(number: int) -> None:
        if number == 50:
            replay.begin_phase("after")

    asyncio.run(replay.run(islice(Conversations().requests(), 100), before=before))
    assert [phase.name for phase in replay.phases] == ["before", "after"]
    assert sum(phase.requests for phase in replay.phases) == 100
    assert all(phase.seconds > 0 for phase in replay.phases)


STATUS = Status.model_validate(
    {
        "pool": {"evictions": 7},
        "operations": {"get_local": 3, "get_remote": 4, "stale_retries": 1},
        "transfer": [{"engine": "rdma", "bytes": 2_000_000_000}, {"engine": "tcp", "bytes": 0}],
    }
).model_dump()


def summary_of(**changes: Any) -> dict[str, Any]:
    requests = list(islice(Conversations().requests(), 50))
    replay = replay_with(perfect_workers(1))
    asyncio.run(replay.run(requests))
    replay.phases[0].prefill[0].add(Outcome(**changes))
    return report.summarise(
        replay.phases,
        replay.taken,
        workload="test",
        page_bytes=65_536,
        capacity_pages=100,
        daemons={"a": STATUS, "b": STATUS, "c": None},
    )


def shown(summary: dict[str, Any]) -> str:
    text = StringIO()
    report.show(summary, Console(file=text, width=140))
    return text.getvalue()


def test_a_clean_replay_succeeds_and_its_table_names_all_figures() -> None:
    summary = summary_of()
    assert report.succeeded(summary)
    assert summary["evictions"] == 14
    assert summary["get_remote"] == 8
    assert summary["between_daemons_bytes"] == {"rdma": 4_000_000_000, "tcp": 0}
    text = shown(summary)
    for figure in (
        "hit rate",
        "Belady",
        "p99",
        "evictions",
        "stale",
        "GB set",
        "over RDMA",
        "WRONG BYTES",
    ):
        assert figure in text


def test_wrong_bytes_and_raising_clients_fail_the_replay_and_are_shown() -> None:
    summary = summary_of(wrong_pages=1, wrong=["page b'k' is wrong at 5"])
    assert not report.succeeded(summary)
    assert "page b'k' is wrong at 5" in shown(summary)
    summary = summary_of(error="ValueError: no")
    assert not report.succeeded(summary)
    assert "ValueError: no" in shown(summary)


def test_misses_and_refused_sets_alone_do_not_fail_it() -> None:
    summary = summary_of(missed={"stale": 3}, unset={"no_space": 2})
    assert report.succeeded(summary)
    assert "3 stale" in shown(summary)
    assert "2 no_space" in shown(summary)


def test_a_percentile_is_a_value_that_was_measured() -> None:
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile([1.0] * 99 + [9.0], 0.99) == 1.0
    assert percentile([1.0] * 98 + [9.0] * 2, 0.99) == 9.0
    assert math.isnan(percentile([], 0.5))


def test_tallies_add_up() -> None:
    one, other = Tally(), Tally()
    one.add(Outcome(asked_pages=4, hit_pages=1, missed={"stale": 1}))
    other.add(Outcome(asked_pages=4, hit_pages=3, missed={"stale": 2, "absent": 1}))
    one += other
    assert one.jobs == 2
    assert one.hit_rate == 0.5
    assert one.missed == {"stale": 3, "absent": 1}
