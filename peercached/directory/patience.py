"""Timeout of a lookup at one owner, after which other owners are asked, too.

Estimated from its latest lookups, as TCP estimates its retransmission timeout (RFC 6298: smoothed
mean and deviation). A second call costs little; waiting for a hung daemon costs the caller its
deadline. The margin keeps a briefly busy machine from doubling the load of all.
"""

from __future__ import annotations

from dataclasses import dataclass

MARGIN_S = 0.02
DIGEST_S = 2e-6  # allowance per digest: keeps large batches out of the estimate
DEVIATIONS = 4.0
FIRST_S = 0.1  # the mean before the first answer
# Upper bound: a hang inflates the estimate, but no caller waits for seconds.
DELAY_MAX_S = 0.5
_MEAN_GAIN = 1 / 8
_DEVIATION_GAIN = 1 / 4


@dataclass(slots=True)
class Patience:
    """The estimate for one owner. Not thread safe."""

    _mean_s: float = FIRST_S
    _deviation_s: float = 0.0
    _asked: bool = False

    def delay_s(self, digests: int) -> float:
        usual_s = self._mean_s + max(MARGIN_S, DEVIATIONS * self._deviation_s)
        return min(usual_s, DELAY_MAX_S) + digests * DIGEST_S

    def answered(self, took_s: float, digests: int) -> None:
        """Records a lookup's time. Include late ones: the estimate must follow a slow owner."""
        took_s = max(took_s - digests * DIGEST_S, 0.0)
        if not self._asked:
            self._asked = True
            self._mean_s, self._deviation_s = took_s, took_s / 2
            return
        self._deviation_s += _DEVIATION_GAIN * (abs(took_s - self._mean_s) - self._deviation_s)
        self._mean_s += _MEAN_GAIN * (took_s - self._mean_s)
