"""Estimates the cost of the object store by the key cold_prices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

KINDS = ("put", "get", "delete", "gb_month")
MONTH_S = 30 * 86400
# A listing costs as much as a put.
_PRICE_OF = {"put": "put", "list": "put", "get": "get", "delete": "delete"}
# The cost of requests is told only after so long: a node makes many of them at its start.
COUNT_MIN_S = 3600.0


def check_prices(value: str) -> str:
    Prices.parse(value)
    return value


@dataclass(frozen=True, slots=True)
class Prices:
    """Of 1000 requests of a kind, and of 10^9 bytes for a month. Empty: no list was given."""

    of: Mapping[str, float]

    @staticmethod
    def parse(text: str) -> Prices:
        """`text`: "put 0.005, get 0.0004, gb_month 0.023". ValueError with the remedy."""
        of: dict[str, float] = {}
        for part in filter(None, (part.strip() for part in text.split(","))):
            kind, _, price = part.partition(" ")
            try:
                number = float(price)
            except ValueError:
                number = -1.0
            if kind not in KINDS or kind in of or not 0 <= number < 1e6:
                raise ValueError(
                    f"has {part!r}; give prices such as put 0.005, get 0.0004, gb_month 0.023 "
                    f"(once each: {', '.join(KINDS)})"
                )
            of[kind] = number
        if text.strip() and not of:
            raise ValueError(f"is {text!r}: it has no price; give one such as get 0.0004, or none")
        return Prices(of)

    def of_request(self, kind: str) -> float | None:
        """Of one request of that kind. None: its price is not known."""
        price = self.of.get(kind)
        return None if price is None else price / 1000

    def per_month(
        self, requests: Mapping[str, int], seconds: float, stored_bytes: int
    ) -> dict[str, float]:
        """Of the store's bytes, and of requests at the rate of these `seconds` if they are enough
        to tell. Empty without prices."""
        if not self.of:
            return {}
        costs = {"bytes": stored_bytes / 1e9 * self.of.get("gb_month", 0.0)}
        if seconds >= COUNT_MIN_S:
            each = (n * self.of.get(_PRICE_OF[kind], 0.0) / 1000 for kind, n in requests.items())
            costs["requests"] = sum(each) * MONTH_S / seconds
        return costs
