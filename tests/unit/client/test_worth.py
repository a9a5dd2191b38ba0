"""Pages that an engine loads, and loads that it gives up."""

import pytest

from peercache_client.forecast import Forecast, Judged
from peercache_client.worth import GIVE_UP_MIN_S, Worth, best_length

TOKENS = 100


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def forecast_of(p90_s: list[float], missing: int = 0) -> Forecast:
    p50_s = [each / 2 for each in p90_s]
    return Forecast(
        [True] * len(p90_s) + [False] * missing,
        p50_s + p50_s[-1:] * missing,
        p90_s + p90_s[-1:] * missing,
    )


def pages_of(request: object, count: int) -> list[tuple[object, int]]:
    return [(request, page) for page in range(count)]


@pytest.mark.parametrize(
    ("load_s", "best"),
    [
        ([], 0),
        ([0.01, 0.02, 0.03], 3),  # computing takes 0.1 s a page
        ([1.0, 1.1, 1.2], 0),
        ([0.01, 0.02, 0.5], 2),  # the last page is at a slow holder
        ([0.25, 0.26, 0.27], 3),  # the latency pays off with the third page
        ([0.25, 0.26], 0),
        ([0.1, 0.2], 2),  # both take as long, but a load leaves the GPU to others
    ],
)
def test_the_prefix_with_the_least_time_is_loaded(load_s: list[float], best: int) -> None:
    assert best_length(load_s, TOKENS, 1000.0) == best


def test_a_load_that_nobody_notices_is_not_judged() -> None:
    worth = Worth(TOKENS, prefill_tokens_per_s=1e9)
    assert worth.judge("ab", forecast_of([0.01, 0.02])) == 2
    assert worth.judge("ab", forecast_of([0.02, 0.04])) == 0


def test_nothing_is_cut_without_a_rate() -> None:
    slow = forecast_of([100.0, 200.0])
    assert Worth(TOKENS).judge("ab", slow) == 2, "none measured yet"
    assert Worth(TOKENS, prefill_tokens_per_s=0).judge("ab", slow) == 2
    assert Worth(0, prefill_tokens_per_s=1000).judge("ab", slow) == 2, "pages of unknown tokens"
    unknown = Forecast([True, True], [], [])
    assert Worth(TOKENS, prefill_tokens_per_s=1000).judge("ab", unknown) == 2, "an older daemon"
    assert Worth(TOKENS, prefill_tokens_per_s=1000).judge("ab", slow) == 0


def test_a_page_of_several_keys_is_there_if_all_are() -> None:
    worth = Worth(TOKENS, prefill_tokens_per_s=1000)
    forecast = Forecast(
        [True] * 5 + [False], [0.01] * 3 + [3.0] * 3, [0.01, 0.01, 0.02, 9.0, 9.1, 9.1]
    )
    assert worth.judge("abc", forecast, page_keys=2) == 1
    assert worth.take_news().cut_pages == 1


def test_the_rate_is_the_median_from_lookups_to_stores() -> None:
    clock = Clock()
    worth = Worth(TOKENS, clock=clock)
    for request, took_s in enumerate([0.1, 0.2, 0.2, 0.2, 29.0]):
        pages = pages_of(request, 4)
        worth.judge(pages, forecast_of([0.01], missing=3))
        clock.now_s += 5.0  # the load of the first page
        worth.loaded(pages[:1])
        clock.now_s += took_s
        worth.stored(pages)
    assert worth.tokens_per_s == pytest.approx(300 / 0.2)


def test_an_engine_that_stores_late_was_idle() -> None:
    clock = Clock()
    worth = Worth(TOKENS, clock=clock)
    for request in range(8):
        pages = pages_of(request, 4)
        worth.judge(pages, Forecast([False] * 4, [], []))
        clock.now_s += 31.0
        worth.stored(pages)
    assert worth.tokens_per_s is None


def test_a_prefill_in_chunks_is_measured_from_its_lookup() -> None:
    clock = Clock()
    worth = Worth(TOKENS, clock=clock)
    pages = pages_of("long", 40)
    worth.judge(pages, Forecast([False] * 40, [], []))
    for begin in range(0, 40, 10):
        clock.now_s += 1.0
        worth.stored(pages[begin : begin + 10])
    assert worth.tokens_per_s == pytest.approx(1000)


def test_a_load_may_take_a_multiple_of_its_forecast() -> None:
    worth = Worth(TOKENS, give_up_factor=3)
    worth.judge("abc", forecast_of([0.1, 0.4, 0.5]))
    assert worth.give_up_s("abc") == pytest.approx(1.5)
    assert worth.give_up_s("ab") == pytest.approx(1.2)
    assert worth.give_up_s("a") == 1.0, "the rate is not measured yet"
    assert worth.give_up_s("unknown") is None


@pytest.mark.parametrize(("p90_s", "limit_s"), [(0.1, 0.6), (0.3, 0.9), (0.5, 1.2)])
def test_a_load_is_given_up_after_computing_once_to_twice(p90_s: float, limit_s: float) -> None:
    worth = Worth(TOKENS, prefill_tokens_per_s=500)  # so these pages take 0.6 s
    worth.judge("abc", forecast_of([p90_s / 3, p90_s / 2, p90_s]))
    assert worth.give_up_s("abc") == pytest.approx(limit_s)


def as_one(p50_s: float, p90_s: float) -> Forecast:
    return Forecast([True] * 3, [p50_s] * 3, [p90_s] * 3)


def test_one_late_load_does_not_cut_the_next_ones() -> None:
    """A late one is given up after its computing time. So it costs twice that."""
    worth = Worth(TOKENS, prefill_tokens_per_s=500)  # these pages take 0.6 s
    assert worth.judge("abc", as_one(0.1, 50.0)) == 3
    assert worth.give_up_s("abc") == pytest.approx(0.6)
    assert worth.judge("abc", as_one(0.25, 50.0)) == 3
    assert worth.give_up_s("abc") == pytest.approx(0.75), "three times the p50"
    assert worth.judge("abc", as_one(0.32, 50.0)) == 0, "a late one costs 0.96 s and 0.6 s"


def test_a_late_load_costs_all_its_time_if_none_is_given_up() -> None:
    patient = Worth(TOKENS, prefill_tokens_per_s=500, give_up_factor=0)
    assert patient.judge("abc", as_one(0.1, 2.0)) == 3
    assert patient.judge("abc", as_one(0.1, 50.0)) == 0


def test_no_load_is_given_up_at_once_or_by_a_factor_of_zero() -> None:
    worth = Worth(TOKENS, prefill_tokens_per_s=1e5)
    worth.judge("a", forecast_of([0.001]))
    assert worth.give_up_s("a") == GIVE_UP_MIN_S
    patient = Worth(TOKENS, prefill_tokens_per_s=1000, give_up_factor=0)
    patient.judge("a", forecast_of([0.001]))
    assert patient.give_up_s("a") is None


def test_the_news_say_what_was_cut_and_given_up_once() -> None:
    worth = Worth(TOKENS, prefill_tokens_per_s=1000)
    worth.judge("abc", forecast_of([0.01, 2.0, 4.0]))
    worth.loaded("a", given_up=1)
    news = worth.take_news()
    assert news[:2] == (2, 1)
    assert news.cut_s == pytest.approx(3.0 - 0.0075)
    assert news.computed_s == pytest.approx(0.2)
    assert worth.take_news() == Judged()


def test_it_remembers_a_bounded_number_of_pages() -> None:
    worth = Worth(TOKENS, prefill_tokens_per_s=1000)
    for request in range(3000):
        worth.judge(pages_of(request, 100), forecast_of([0.01] * 50, missing=50))
    assert len(worth._questions) <= 1024
    assert len(worth._question_of) <= 1 << 16
    assert worth.give_up_s([(0, 0)]) is None
    assert worth.give_up_s([(2999, 0)]) is not None
