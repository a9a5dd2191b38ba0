"""The best possible hit rate, compared to a search through all cache contents."""

from functools import cache
from itertools import combinations, islice

from hypothesis import given
from hypothesis import strategies as st

from demo.belady import best_hits, best_hits_unbounded
from demo.workload import Conversations, Request


def best_by_search(requests: list[Request], capacity: int) -> int:
    """Tries every possible cache content after every request."""

    @cache
    def best_from(number: int, cached: frozenset[int]) -> int:
        if number == len(requests):
            return 0
        request = requests[number]
        hits = 0
        for block in request.chain:
            if block not in cached:
                break
            hits += 1
        may_keep = sorted(cached | set(request.chain) | set(request.answer))
        size = min(capacity, len(may_keep))
        return hits + max(
            best_from(number + 1, frozenset(kept)) for kept in combinations(may_keep, size)
        )

    return best_from(0, frozenset())


@st.composite
def tiny_workloads(draw: st.DrawFn) -> list[Request]:
    """Requests are paths in a small random tree, so equal blocks have equal prefixes."""
    parents = [draw(st.integers(-1, block - 1)) for block in range(draw(st.integers(2, 7)))]

    def chain(block: int) -> tuple[int, ...]:
        return () if block < 0 else (*chain(parents[block]), block)

    ends = draw(st.lists(st.sampled_from(range(len(parents))), min_size=1, max_size=6))
    return [Request(chain(end)) for end in ends]


@given(tiny_workloads(), st.integers(1, 4))
def test_no_cache_hits_more_than_best_hits_and_one_hits_as_much(
    requests: list[Request], capacity: int
) -> None:
    longest = max(len(request.chain) for request in requests)
    if capacity >= longest:
        assert best_hits(requests, capacity) == best_by_search(requests, capacity)
    else:  # the references of one chain may use the same place in turn
        assert best_hits(requests, capacity) >= best_by_search(requests, capacity)


@given(tiny_workloads())
def test_enough_capacity_is_as_good_as_infinite(requests: list[Request]) -> None:
    assert best_hits(requests, 100) == best_hits_unbounded(requests)


def test_answers_can_be_hit_but_do_not_count_themselves() -> None:
    requests = [Request((1,), (2,)), Request((1, 2, 3))]
    assert best_hits_unbounded(requests) == 2
    assert best_hits(requests, 10) == 2
    assert best_hits(requests, 1) == 1


def test_more_capacity_never_hurts() -> None:
    requests = list(islice(Conversations().requests(), 300))
    hits = [best_hits(requests, capacity) for capacity in (0, 50, 200, 800, 3200, 100_000)]
    assert hits == sorted(hits)
    assert hits[0] == 0
    assert hits[-1] == best_hits_unbounded(requests)
