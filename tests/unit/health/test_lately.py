"""Findings about counters end some time after the counter stopped."""

from peercached.health.lately import DAY_S, HOUR_S, Lately, Recent


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_growth_counts_for_the_window_and_no_longer() -> None:
    clock = Clock()
    refused = Recent(HOUR_S, clock)
    assert refused.grown(0) == 0
    assert refused.grown(34) == 34
    clock.now += HOUR_S - 1
    assert refused.grown(34) == 34
    assert refused.grown(36) == 36
    clock.now += 2
    assert refused.grown(36) == 2, "only what came later"
    clock.now += HOUR_S
    assert refused.grown(36) == 0
    assert refused.grown(37) == 1


def test_growth_before_the_first_look_counts() -> None:
    assert Recent(HOUR_S, Clock()).grown(5) == 5


def test_a_counter_that_grows_all_the_time_costs_bounded_memory() -> None:
    clock = Clock()
    recent = Recent(HOUR_S, clock)
    for count in range(1, 20_000):
        clock.now += 1
        grown = recent.grown(count)
    assert HOUR_S * 0.98 <= grown <= HOUR_S + 1
    assert len(recent._samples) <= 66


def test_counters_have_windows_of_their_own() -> None:
    clock = Clock()
    lately = Lately(clock)
    lately.grown("corrupt", 1, DAY_S)
    lately.grown("refused", 1)
    clock.now += 2 * HOUR_S
    assert lately.grown("corrupt", 1, DAY_S) == 1
    assert lately.grown("refused", 1) == 0
