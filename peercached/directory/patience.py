"""How long an owner may take for a lookup before the others are asked, too.

From what its lookups took lately, as TCP estimates its time-outs (RFC 6298: smoothed mean and
deviation). Asking twice costs little and waiting for a hung daemon costs the engine its deadline;
but a machine that is busy for a moment must not double everybody's work, hence the margin.
"""

from __future__ import annotations

from dataclasses import dataclass

MARGIN_S = 0.02
DIGEST_S = 2e-6  # a large batch takes longer, and says nothing about a small one
DEVIATIONS = 4.0
FIRST_S = 0.1  # the mean while nothing is known yet
# What waited out a hang says nothing about the next lookup: an engine does not wait for seconds.
DELAY_MAX_S = 0.5
_MEAN_GAIN = 1 / 8
_DEVIATION_GAIN = 1 / 4


@dataclass(slots=True)
class Patience:
    """With one owner. Not thread safe."""

    _mean_s: float = FIRST_S
    _deviation_s: float = 0.0
    _asked: bool = False

    def delay_s(self, digests: int) -> float:
        usual_s = self._mean_s + max(MARGIN_S, DEVIATIONS * self._deviation_s)
        return min(usual_s, DELAY_MAX_S) + digests * DIGEST_S

    def answered(self, took_s: float, digests: int) -> None:
        """Also for one that was late: if that is what it takes, it is not overdue."""
        took_s = max(took_s - digests * DIGEST_S, 0.0)
        if not self._asked:
            self._asked = True
            self._mean_s, self._deviation_s = took_s, took_s / 2
            return
        self._deviation_s += _DEVIATION_GAIN * (abs(took_s - self._mean_s) - self._deviation_s)
        self._mean_s += _MEAN_GAIN * (took_s - self._mean_s)
