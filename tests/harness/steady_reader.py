"""A reader of the same pages over and over, with a timeline of its hits."""

import time
from collections.abc import Sequence
from typing import NamedTuple

from harness.background import Background
from harness.clock import now_s, seconds
from harness.pages import Pages
from harness.waiting import eventually

BATCH_PAGES = 64
_PAUSE_S = 0.004  # about as long as a batch takes: other tests want the processor, too


class Batch(NamedTuple):
    began_s: float  # by harness.clock.now_s()
    asked: int
    hits: int


class SteadyReader(Background):
    """Within the block, each round reads all the pages once and compares their bytes."""

    def __init__(self, pages: Pages, keys: Sequence[bytes]) -> None:
        super().__init__(self._read_all)
        self._pages = pages
        self._batches = [keys[at : at + BATCH_PAGES] for at in range(0, len(keys), BATCH_PAGES)]
        self._counts_from = 0  # earlier batches are forgotten
        self.timeline: list[Batch] = []

    def _read_all(self) -> None:
        for keys in self._batches:
            began_s = now_s()
            hits = sum(map(bool, self._pages.get(keys)))
            self.timeline.append(Batch(began_s, len(keys), hits))
            time.sleep(_PAUSE_S)

    def forget(self) -> None:
        """From now on, earlier misses do not count."""
        # The current batch began earlier, so it does not count either.
        self._counts_from = len(self.timeline) + 1

    def check_whole(self, what: str, rounds: int = 1, for_s: float = 0.0) -> None:
        """Waits until all pages have been read `rounds` more times, and `for_s` seconds of the
        reference machine are over. AssertionError if any read was a miss, except those that
        forget() covers.

        Rounds alone prove nothing: a quick machine does many of them before any timer of a daemon
        fires. Wait for the event first, then call this."""
        began_s = now_s()
        enough = len(self.timeline) + 1 + rounds * len(self._batches)
        until = time.monotonic() + seconds(for_s)

        def read_enough() -> bool:
            return len(self.timeline) >= enough and time.monotonic() >= until

        eventually(lambda: self.ended or read_enough(), 60 + for_s, f"reads after {what}")
        judged = self.timeline[self._counts_from :]
        missed = [batch for batch in judged if batch.hits < batch.asked]
        lines = (
            f"{batch.asked - batch.hits} of {batch.asked} at {batch.began_s - began_s:+.2f} s"
            for batch in missed[:20]
        )
        assert not missed, f"missed; {what} at 0 s: " + ", ".join(lines)
        assert len(self.timeline) >= enough, f"nobody reads any more after {what}"
