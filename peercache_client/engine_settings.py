"""The settings that engines' configurations give to our part in them."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Final, TypeVar

from peercache_client.client import DEFAULT_SOCKET_PATH
from peercache_client.identity import check_text
from peercache_client.worth import GIVE_UP_FACTOR

S = TypeVar("S", bound="EngineSettings")
J = TypeVar("J", bound="JudgingSettings")


@dataclass(frozen=True)
class EngineSettings:
    """Keys that are not given have these defaults."""

    socket_path: str = DEFAULT_SOCKET_PATH
    timeout_s: float = 5.0  # per get or set of up to 128 pages
    model_revision: str = ""
    namespace: str = ""
    tenant: str = ""
    stores_only: bool = False  # finds no page, so that the engine computes and stores all

    TIMEOUT_MAX_S: ClassVar[float] = 60.0

    @classmethod
    def checked(
        cls: type[S], given: Mapping[str, Any], where: str, others: frozenset[str] = frozenset()
    ) -> S:
        """ValueError for an unknown key or an invalid value. `where`: the place of the keys in the
        engine's configuration. `others`: keys there that the engine itself reads."""
        known = {field.name for field in fields(EngineSettings)}
        for key in given:
            if key not in known:
                raise ValueError(_unknown(key, where, known | others))
        for key in known - {"timeout_s", "stores_only"}:
            check_text(key, given.get(key, ""))
        stores_only = given.get("stores_only", cls.stores_only)
        if not isinstance(stores_only, bool):
            raise ValueError(f"stores_only is {stores_only!r}: true or false")
        seconds("timeout_s", given.get("timeout_s", cls.timeout_s), cls.TIMEOUT_MAX_S)
        return cls(**given)


_RATE_MAX: Final = 1e9
_FACTOR_MAX: Final = 1e6


@dataclass(frozen=True)
class JudgingSettings(EngineSettings):
    """Of engines that compute pages instead of loading them where that is quicker."""

    prefill_tokens_per_s: float | None = None  # None: measured. 0: all pages are loaded
    give_up_factor: float = GIVE_UP_FACTOR  # of the usual time of a load. 0: none is given up

    KEYS_OF_JUDGING: ClassVar[frozenset[str]] = frozenset(
        {"prefill_tokens_per_s", "give_up_factor"}
    )

    @classmethod
    def checked(
        cls: type[J], given: Mapping[str, Any], where: str, others: frozenset[str] = frozenset()
    ) -> J:
        own = {key: given[key] for key in cls.KEYS_OF_JUDGING if key in given}
        rest = {key: value for key, value in given.items() if key not in own}
        parsed = super().checked(rest, where, others | cls.KEYS_OF_JUDGING)
        if own.get("prefill_tokens_per_s") is not None:
            rate = _number("prefill_tokens_per_s", own["prefill_tokens_per_s"], _RATE_MAX)
            parsed = replace(parsed, prefill_tokens_per_s=rate)
        if "give_up_factor" in own:
            factor = _number("give_up_factor", own["give_up_factor"], _FACTOR_MAX)
            if 0 < factor < 1:
                raise ValueError(f"give_up_factor is {factor:g}: 0, or 1 and more")
            parsed = replace(parsed, give_up_factor=factor)
        return parsed


def _number(key: str, value: Any, most: float) -> float:
    fits = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not fits or not 0 <= value <= most:
        raise ValueError(f"{key} is {value!r}: a number from 0 to {most:g}")
    return float(value)


def seconds(key: str, value: Any, most: float, least: float | None = None) -> float:
    """ValueError unless it is a number within these limits. `least`: None for above 0."""
    fits = isinstance(value, (int, float)) and not isinstance(value, bool) and value <= most
    if not fits or (value <= 0 if least is None else value < least):
        begin = "above 0" if least is None else f"{least:g} or more"
        raise ValueError(f"{key} is {value!r}: {begin} and at most {most:g} seconds")
    return float(value)


def _unknown(key: str, where: str, known: set[str]) -> str:
    near = difflib.get_close_matches(key, sorted(known), 1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"unknown key {key!r} in {where}: {hint}known are {', '.join(sorted(known))}"
