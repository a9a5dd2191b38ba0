"""Options that are numbers or sizes."""

from __future__ import annotations

import math
from typing import Any

import click


class Number(click.FloatRange):
    """A range without NaN, which is neither below nor above any bound, and without infinity."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


class Size(click.ParamType):  # type: ignore[type-arg]  # older versions of click take none
    """Bytes, written as in the configuration."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        from peercached.config.values import parse_size

        try:
            return parse_size(value)
        except ValueError as error:
            self.fail(f"{value}: {error}", param, ctx)
