"""Findings about counters end some time after the counter stopped."""

import pytest

from peercached.health import recent_growth
from peercached.health.recent_growth import DAY_S, HOUR_S, Lately, Recent


class Clock:
    now = 1000.0

    @classmethod
    def monotonic(cls) -> float:
        return cls.now


@pytest.fixture(autouse=True)
def fake_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_growth, "time", Clock)


def test_growth_counts_for_the_window_and_no_longer() -> None:
    refused = Recent(HOUR_S)
    assert refused.grown(0) == 0
    assert refused.grown(34) == 34
    Clock.now += HOUR_S - 1
    assert refused.grown(34) == 34
    assert refused.grown(36) == 36
    Clock.now += 2
    assert refused.grown(36) == 2, "only what came later"
    Clock.now += HOUR_S
    assert refused.grown(36) == 0
    assert refused.grown(37) == 1


def test_growth_before_the_first_look_counts() -> None:
    assert Recent(HOUR_S).grown(5) == 5


def test_a_counter_that_grows_all_the_time_costs_bounded_memory() -> None:
    recent = Recent(HOUR_S)
    for count in range(1, 20_000):
        Clock.now += 1
        grown = recent.grown(count)
    assert HOUR_S * 0.98 <= grown <= HOUR_S + 1
    assert len(recent._samples) <= 66


def test_counters_have_windows_of_their_own() -> None:
    counters = Lately()
    counters.grown("corrupt", 1, DAY_S)
    counters.grown("refused", 1)
    Clock.now += 2 * HOUR_S
    assert counters.grown("corrupt", 1, DAY_S) == 1
    assert counters.grown("refused", 1) == 0
