"""Somebody who reads the same pages over and over, and a line in time of what was found."""

import time
from collections.abc import Sequence
from typing import NamedTuple

from harness.background import Background
from harness.clock import MACHINE
from harness.pages import Pages
from harness.waiting import eventually
from peercached.membership.liveness import ROUND_DEADLINES
from peercached.membership.timing import Timing

BATCH_PAGES = 64
# Masters wait a heartbeat for each one before them, and push their views to all the others.
MASTERS_BEFORE_MAX = 2


class Moment(NamedTuple):
    """Monotonic seconds, and how late the machine had been until then."""

    at: float
    late_s: float

    @classmethod
    def now(cls) -> "Moment":
        return cls(time.monotonic(), MACHINE.late_s())

    def since(self, before: "Moment") -> float:
        """Seconds, net of what the machine was late in between."""
        return self.at - before.at - (self.late_s - before.late_s)


class Batch(NamedTuple):
    began: Moment
    asked: int
    hits: int


class SteadyReader(Background):
    """Within the block: each round reads all the pages once, and compares their bytes."""

    def __init__(self, pages: Pages, keys: Sequence[bytes]) -> None:
        super().__init__(self._read_all)
        self._pages = pages
        self._batches = [keys[at : at + BATCH_PAGES] for at in range(0, len(keys), BATCH_PAGES)]
        self.timeline: list[Batch] = []

    def _read_all(self) -> None:
        for keys in self._batches:
            began = Moment.now()
            hits = sum(map(bool, self._pages.get(keys)))
            self.timeline.append(Batch(began, len(keys), hits))

    def check_whole(
        self,
        event: Moment,
        within_s: float = 0.0,
        what: str = "the event",
        rounds: int = 1,
    ) -> None:
        """Reads on until all pages have been asked for `rounds` times later than `within_s` after
        the event. AssertionError unless all that was asked from then on, or without `within_s`
        all that was ever asked, was a hit.

        It must be called within the block. A quick machine reads many rounds before `within_s` is
        over and a slow one none, so only this method knows when there is something to judge."""

        def counts(batch: Batch) -> bool:
            return batch.began.since(event) > within_s

        def judged() -> list[Batch]:
            return [batch for batch in self.timeline if counts(batch)]

        enough = rounds * len(self._batches)
        eventually(lambda: self.ended or len(judged()) >= enough, within_s + 60, what)
        assert len(judged()) >= enough, f"nobody reads any more after {what}"
        late = [
            batch for batch in (judged() if within_s else self.timeline) if batch.hits < batch.asked
        ]
        lines = (
            f"{batch.asked - batch.hits} of {batch.asked} at {batch.began.since(event):.2f} s"
            for batch in late[:20]
        )
        assert not late, f"missed after {what}: " + ", ".join(lines)


def noticed_within_s(timing: Timing) -> float:
    """In which the death of a member is known to all, from its last sign of life on: its TTL, or
    the round of probes if that ends later, and the way of the view. None but masters died: see
    `taken_over_within_s`."""
    probed_s = timing.suspect_after_s + ROUND_DEADLINES * timing.call_deadline_s
    masters_s = MASTERS_BEFORE_MAX * timing.heartbeat_interval_s
    return max(timing.member_ttl_s, probed_s) + masters_s + 2 * timing.call_deadline_s


def taken_over_within_s(timing: Timing) -> float:
    """The same if all masters died: others must begin to act as such first."""
    return timing.takeover_after_s + noticed_within_s(timing)
