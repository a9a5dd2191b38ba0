"""The claim of test_removals.py over the real data plane: what is read has come out of real pools,
disks and journals. Stories of a seed differ a little from run to run (real_removals.py)."""

from __future__ import annotations

import pytest

from sim import real_removals
from sim.test_cluster import some


# 23: a removal waits for a process that its driver has never met, and whose node is back.
@pytest.mark.parametrize("seed", [*some(3, 100), 23])
def test_no_read_finds_what_was_removed_before_it_began(seed: int) -> None:
    real_removals.removed(seed)
