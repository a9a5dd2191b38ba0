"""The daemon's forecasts of loads: the keys that are present, and how long to load them."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from itertools import accumulate
from numbers import Integral, Real
from typing import Any, NamedTuple

from peercache_client import wire
from peercache_client.batch import KeyFrame, exists_request, key_frames
from peercache_client.session import Reply, Session
from peercache_client.status import Status
from peercache_client.wire import Flag, Key, Op

_PAGES_MAX = (1 << 32) - 1
_S_MAX = 1e12
_COLUMNS_BYTES = 4 + 4 + 1  # of each key: p50, p90, cold


class Judged(NamedTuple):
    """A worker's use of forecasts, for the daemon's sums."""

    cut_pages: int = 0  # found, and computed instead of loaded
    given_up_pages: int = 0  # their load took far longer than forecast
    cut_s: float = 0.0  # forecast for the pages that were cut
    computed_s: float = 0.0  # to compute these, by the measured rate

    def plus(self, other: Judged) -> Judged:
        return Judged(
            self.cut_pages + other.cut_pages,
            self.given_up_pages + other.given_up_pages,
            self.cut_s + other.cut_s,
            self.computed_s + other.computed_s,
        )

    def packed(self) -> bytes:
        """TypeError, ValueError."""
        values: dict[str, Any] = self._asdict()
        for name, value in values.items():
            of_time = name.endswith("_s")
            is_right = isinstance(value, Real if of_time else Integral)
            if not is_right:
                wanted = "a number of seconds" if of_time else "a whole number"
                raise TypeError(f"judged.{name} is {value!r:.80}: give {wanted}")
            if not 0 <= value < math.inf:
                raise ValueError(f"judged.{name} is {value!r:.80}: give 0 or more")
        pages = (min(each, _PAGES_MAX) for each in self[:2])
        times = (int(1e6 * min(each, _S_MAX)) for each in self[2:])
        return wire.FORECAST_NEWS.pack(*pages, *times)


class Forecast(NamedTuple):
    """`p50_s[i]` and `p90_s[i]`: seconds to load all present pages up to key i, together. Both are
    empty if the daemon could not say. `cold[i]`: only the object store has the page, as far as the
    daemon knows; empty if it is of an older version."""

    present: list[bool]
    p50_s: list[float]
    p90_s: list[float]
    cold: Sequence[bool] = ()

    def joined(self, ends: Sequence[int]) -> Forecast:
        """Of groups of keys, each present if one of its keys is. `ends`: of the groups."""
        groups = list(zip([0, *ends], ends, strict=False))
        present, cold = ([any(each[a:b]) for a, b in groups] for each in (self.present, self.cold))
        p50_s, p90_s = ([s[b - 1] for b in ends] if s else [] for s in (self.p50_s, self.p90_s))
        return Forecast(present, p50_s, p90_s, cold)


def forecast_loads(
    session: Session,
    keys: Sequence[Key],
    parent: Key | None,
    end: float,
    hold_s: float,
    page_tokens: int,
    page_keys: int,
    every: bool,
    judged: Judged | None,
) -> Forecast:
    """See Client.forecast."""
    if not isinstance(judged, Judged | None):
        raise TypeError(f"judged is {judged!r:.80}: give a peercache_client.forecast.Judged")
    news = (judged or Judged()).packed()
    present: list[bool] = []
    cold: list[bool] = []
    knows_cold = False
    p50_s, p90_s = array("d"), array("d")
    for frame in key_frames(keys, parent):
        flags, body = exists_request(frame, hold_s, page_tokens, page_keys)
        flags |= Flag.bitmap if every else 0
        asked = (*body, news)
        reply = session.ask(Op.exists, flags | Flag.forecast | Flag.cold, frame.keys, end, asked)
        if reply is Status.error:  # from a daemon of an older version
            reply = session.ask(Op.exists, flags | Flag.forecast, frame.keys, end, asked)
        if reply is Status.error:
            reply = session.ask(Op.exists, flags, frame.keys, end, body)
        news = Judged().packed()
        there, columns = _parts(reply, frame, every)
        present += there
        in_store = columns[8 * frame.keys :] or bytes(frame.keys)
        knows_cold = knows_cold or len(columns) == _COLUMNS_BYTES * frame.keys
        cold += [bool(one) and each for one, each in zip(in_store, there, strict=True)]
        times = array("I", columns[: 8 * frame.keys])
        for column, more in ((p50_s, times[: frame.keys]), (p90_s, times[frame.keys :])):
            before = column[-1] if column else 0.0
            column.extend(before + us / 1e6 for us in more)
        if not every and not all(there):
            break
    present += [False] * (len(keys) - len(present))
    if len(p50_s) < sum(accumulate(present, min)) or len(p50_s) == 0:
        return Forecast(present, [], [])
    cold += [False] * (len(keys) - len(cold))
    for column in (p50_s, p90_s):
        column.extend([column[-1]] * (len(keys) - len(column)))
    return Forecast(present, p50_s.tolist(), p90_s.tolist(), cold if knows_cold else ())


def _parts(reply: Reply | Status, frame: KeyFrame, every: bool) -> tuple[list[bool], bytes]:
    """The presence of the frame's keys, and the columns. An older daemon lacks some."""
    count = frame.keys
    if not isinstance(reply, Reply):
        return [False] * count, b""
    bitmap = count if every else 0
    columns = reply.body[bitmap:]
    if len(columns) not in (0, 8 * count, _COLUMNS_BYTES * count):
        return [False] * count, b""
    if every:
        return [bool(byte) for byte in reply.body[:bitmap]], columns
    return [i < reply.value for i in range(count)], columns
