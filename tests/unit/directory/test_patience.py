"""How long a lookup waits for one owner before it asks the others too."""

import pytest

from peercached.directory.patience import DELAY_MAX_S, DIGEST_S, FIRST_S, MARGIN_S, Patience


def after(*took_s: float) -> Patience:
    patience = Patience()
    for one in took_s:
        patience.answered(one, 1)
    return patience


def test_unknown_owner_gets_the_fixed_first_delay() -> None:
    assert Patience().delay_s(0) == FIRST_S + MARGIN_S


def test_a_fast_owner_gets_the_margin() -> None:
    assert after(*[0.001] * 20).delay_s(0) == pytest.approx(0.001 + MARGIN_S, rel=0.01)


def test_distant_owners_delay_is_its_lookup_time_plus_a_margin() -> None:
    steady = after(*[0.2] * 50).delay_s(0)
    assert 0.2 < steady < 0.25
    unsteady = after(*[0.1, 0.3] * 25).delay_s(0)
    assert unsteady > 0.3


def test_one_slow_answer_is_forgotten() -> None:
    assert after(0.5, *[0.001] * 100).delay_s(0) == pytest.approx(MARGIN_S, rel=0.1)


def test_slow_answers_after_a_hang_do_not_exceed_delay_max() -> None:
    assert after(*[0.01] * 20, 2.0, 1.8, 1.6, 1.4).delay_s(0) == DELAY_MAX_S


def test_large_batch_gets_more_time_without_raising_the_small_batch_delay() -> None:
    patience = after(*[0.001] * 20)
    assert patience.delay_s(65_536) == pytest.approx(MARGIN_S + 65_536 * DIGEST_S, rel=0.02)
    for _ in range(20):
        patience.answered(0.1, 65_536)
    assert patience.delay_s(0) == pytest.approx(MARGIN_S, rel=0.1)
