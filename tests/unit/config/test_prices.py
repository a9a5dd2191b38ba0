"""Estimates of what the object store costs."""

from __future__ import annotations

import pytest

from peercached.config.prices import COUNT_MIN_S, MONTH_S, Prices


def test_cost_of_requests_is_told_only_after_an_hour() -> None:
    prices = Prices.parse("put 5, get 1, gb_month 2")
    requests = {"put": 10, "list": 20, "get": 50, "delete": 7}
    assert prices.per_month(requests, COUNT_MIN_S - 1, 3 * 10**9) == {"bytes": 6.0}
    costs = prices.per_month(requests, COUNT_MIN_S, 3 * 10**9)
    assert costs["requests"] == pytest.approx(0.2 * MONTH_S / COUNT_MIN_S)
    assert Prices.parse("").per_month(requests, COUNT_MIN_S, 1) == {}
