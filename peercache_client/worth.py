"""Loads only pages that take longer to compute.

For n present pages in front of a prompt, an engine may load the first i and compute the others. The
time to its first token is then the load of i pages, by the daemon's forecast, and the computation
of n - i pages, by the engine's rate. `best_length` takes the i with the least time.

The rate is measured: from the answer to a lookup to the stores of the pages that were missing. So
it has the engine's queue in it, as the next request will. It is the median of the last requests,
because an engine that was idle or busy with something else in between says nothing.

A load that takes far longer than its forecast is given up, and the engine computes its pages. So a
late load costs no more than the wait and this. Without that bound, one late load would cut all the
next ones: then nothing is loaded, and nobody learns that it was the only one.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Final

from peercache_client.forecast import Forecast, Judged

GIVE_UP_FACTOR: Final = 3.0
# A holder is not in trouble before that, and scheduling alone may take it on a busy host.
GIVE_UP_MIN_S: Final = 0.1
# A load has the time that its pages take to compute, and at most so many times that.
_COMPUTING_FACTOR: Final = 2.0
# Forecasts know two times of a load. One late load of ten makes the p90, five make the p50, too.
_LATE_SHARE: Final = 0.25
# The same while the rate is not known. The forecasts of a new node are guesses, too.
_GIVE_UP_UNMEASURED_S: Final = 1.0
# Shorter loads are not judged: nobody notices, and the measures are no more exact.
_NEGLIGIBLE_S: Final = 0.02
# A call must have some time.
_LEFT_MIN_S: Final = 1e-3
_QUESTIONS_MAX: Final = 1024
_PAGES_MAX: Final = 1 << 16
_SAMPLES_MAX: Final = 32
_SAMPLES_MIN: Final = 4
# An engine that stores later was idle, or had another reason to wait.
_COMPUTED_WITHIN_S: Final = 30.0


def best_length(load_s: Sequence[float], page_tokens: int, tokens_per_s: float) -> int:
    """How many of the pages to load. load_s[i]: the time to load pages 0 to i, together."""
    pages = len(load_s)
    page_s = page_tokens / tokens_per_s
    times = [pages * page_s]
    times += [each + (pages - 1 - i) * page_s for i, each in enumerate(load_s)]
    least = min(times)
    return max(i for i, each in enumerate(times) if each == least)


def left_s(give_up_at: float | None) -> float | None:
    """`give_up_s` for the next part of a load, with the time of the monotonic clock when all of it
    is given up."""
    return None if give_up_at is None else max(give_up_at - time.monotonic(), _LEFT_MIN_S)


@dataclass(eq=False)
class _Question:
    """A request's lookup."""

    began_s: float
    missing: set[Hashable]  # pages that the engine computes
    loads: dict[Hashable, tuple[float, float]]  # p50 and p90 of pages that it loads
    stored: int = 0


@dataclass
class _Samples:
    """Rates of the last requests, each with its tokens."""

    last: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=_SAMPLES_MAX))

    def median(self) -> float | None:
        if len(self.last) < _SAMPLES_MIN:
            return None
        half = sum(tokens for _, tokens in self.last) / 2
        for rate, tokens in sorted(self.last):
            half -= tokens
            if half <= 0:
                return rate
        return None


class Worth:
    """One per engine. Thread safe. Pages are any hashable names, the same at all calls."""

    def __init__(
        self,
        page_tokens: int,
        prefill_tokens_per_s: float | None = None,
        give_up_factor: float = GIVE_UP_FACTOR,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`prefill_tokens_per_s`: None to measure it, 0 to cut nothing. `give_up_factor`: of the
        p90 of a load, or of its p50 if computing is quicker than the p90; 0 to give up nothing.
        Without `page_tokens` nothing is judged. It may be set later, before the first call."""
        self.page_tokens = page_tokens
        self._given_rate = prefill_tokens_per_s
        self._give_up_factor = give_up_factor
        self._clock = clock
        self._lock = threading.Lock()
        self._samples = _Samples()
        self._questions: OrderedDict[int, _Question] = OrderedDict()
        self._asked = 0
        self._question_of: dict[Hashable, int] = {}
        self._news = Judged()

    @property
    def tokens_per_s(self) -> float | None:
        """None: not known, so nothing is cut."""
        if self._given_rate is not None:
            return self._given_rate or None
        with self._lock:
            return self._samples.median()

    def judge(self, pages: Sequence[Hashable], forecast: Forecast, page_keys: int = 1) -> int:
        """How many of the leading pages to load. `forecast`: of `page_keys` keys for each page."""
        there = forecast.present
        reach = 0
        while reach < len(pages) and all(there[reach * page_keys : (reach + 1) * page_keys]):
            reach += 1
        ends = range(page_keys - 1, reach * page_keys, page_keys)
        loads = [(forecast.p50_s[i], forecast.p90_s[i]) for i in ends] if forecast.p90_s else []
        rate = self.tokens_per_s
        best = reach
        load_s: list[float] = []
        if rate and self.page_tokens:
            load_s = [
                self._load_s(*load, i * self.page_tokens / rate) for i, load in enumerate(loads, 1)
            ]
        if rate and load_s and load_s[-1] > _NEGLIGIBLE_S:
            best = best_length(load_s, self.page_tokens, rate)
        with self._lock:
            if best < reach:
                assert rate is not None
                cut_s = sum(loads[-1]) / 2 - (sum(loads[best - 1]) / 2 if best else 0.0)
                computed_s = (reach - best) * self.page_tokens / rate
                self._news = self._news.plus(Judged(reach - best, 0, cut_s, computed_s))
            self._remember(pages, best, loads)
        return best

    def give_up_s(self, pages: Sequence[Hashable]) -> float | None:
        """How long a load of these pages may take. None: as long as any."""
        rate = self.tokens_per_s
        with self._lock:
            p50_s = p90_s = 0.0
            for page in pages:
                question = self._questions.get(self._question_of.get(page, -1))
                expected = question.loads.get(page) if question is not None else None
                if expected is None:
                    return None
                p50_s, p90_s = max(p50_s, expected[0]), max(p90_s, expected[1])
        if not self._give_up_factor or not p90_s:
            return None
        if not rate or not self.page_tokens:
            return max(self._give_up_factor * p90_s, _GIVE_UP_UNMEASURED_S)
        return self._limit_s(p50_s, p90_s, len(pages) * self.page_tokens / rate)

    def _limit_s(self, p50_s: float, p90_s: float, compute_s: float) -> float:
        """If the p90 is worth no wait, a load that is not as quick as most is likely such a one."""
        usual_s = p90_s if p90_s <= compute_s else p50_s
        limit_s = max(self._give_up_factor * usual_s, compute_s)
        return max(min(limit_s, _COMPUTING_FACTOR * compute_s), GIVE_UP_MIN_S)

    def _load_s(self, p50_s: float, p90_s: float, compute_s: float) -> float:
        late_s = p90_s
        if self._give_up_factor:
            late_s = min(p90_s, self._limit_s(p50_s, p90_s, compute_s) + compute_s)
        return (1 - _LATE_SHARE) * p50_s + _LATE_SHARE * late_s

    def loaded(self, pages: Sequence[Hashable], given_up: int = 0) -> None:
        """A load has ended. `given_up`: pages that did not come in `give_up_s`."""
        now = self._clock()
        with self._lock:
            self._news = self._news.plus(Judged(0, given_up))
            for page in pages:
                question = self._questions.get(self._question_of.get(page, -1))
                if question is not None:
                    question.began_s = now  # the engine computes the rest from now on

    def stored(self, pages: Sequence[Hashable]) -> None:
        """The engine has these pages now, and begins to store them."""
        now = self._clock()
        with self._lock:
            stored: dict[int, int] = {}
            for page in pages:
                number = self._question_of.get(page, -1)
                question = self._questions.get(number)
                if question is not None and page in question.missing:
                    question.missing.discard(page)
                    del self._question_of[page]
                    stored[number] = stored.get(number, 0) + 1
            for number, count in stored.items():
                question = self._questions[number]
                took_s = now - question.began_s
                question.stored += count
                if 0 < took_s <= _COMPUTED_WITHIN_S:
                    tokens = self.page_tokens
                    self._samples.last.append((question.stored * tokens / took_s, count * tokens))

    def take_news(self) -> Judged:
        """For the daemon, since the last call."""
        with self._lock:
            news, self._news = self._news, Judged()
            return news

    def _remember(
        self, pages: Sequence[Hashable], best: int, loads: Sequence[tuple[float, float]]
    ) -> None:
        if not self.page_tokens:
            return
        loading = dict(zip(pages[:best], loads, strict=False))
        number = self._asked
        self._asked += 1
        self._questions[number] = _Question(self._clock(), set(pages[best:]), loading)
        self._question_of.update(dict.fromkeys(pages, number))
        while len(self._questions) > 1 and (
            len(self._questions) > _QUESTIONS_MAX or len(self._question_of) > _PAGES_MAX
        ):
            old, question = self._questions.popitem(last=False)
            for page in (*question.missing, *question.loads):
                if self._question_of.get(page) == old:
                    del self._question_of[page]
