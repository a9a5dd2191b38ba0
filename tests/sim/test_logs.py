"""Claims about holders' logs and their followers alone, by seed."""

from __future__ import annotations

import pytest

from sim import logs
from sim.seeds import some


# 554: a follower stores other records than before, so it leaves out a record of an answer, but not
# the withdrawal of the one before.
@pytest.mark.parametrize("seed", [*some(6, 400), 554])
def test_a_told_set_is_no_final_miss_and_a_removed_page_is_in_no_table(seed: int) -> None:
    logs.play(seed)
