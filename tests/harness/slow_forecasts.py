"""Forecasts of loads that take long, which no load on one machine does."""

from __future__ import annotations

from typing import Any

import pytest

from peercache_client import Client
from peercache_client.forecast import Forecast

SLOW_S = 10.0  # for each key


def forecast_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    """The daemon's answers, with other times."""
    plain = Client.forecast

    def slow(self: Client, keys: Any, **options: Any) -> Forecast:
        found = plain(self, keys, **options)
        times = [SLOW_S * (i + 1) for i in range(len(keys))]
        return Forecast(found.present, times, times)

    monkeypatch.setattr(Client, "forecast", slow)
