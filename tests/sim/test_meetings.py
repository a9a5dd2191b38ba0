"""Healing of a partitioned cluster. `make sim-meetings` runs more seeds."""

from __future__ import annotations

import pytest

from sim.meetings import meet
from sim.members import TIMING, Members

TTL = TIMING.member_ttl_s
BLOCK = 20
# A master declared a member of another part dead just before it could hear it (docs/membership.md).
# Seed, and for how many seconds a node then lacked a member of its own part.
KNOWN = {247: 0.5, 289: 0.25}


@pytest.mark.parametrize(
    "block",
    [0, *(pytest.param(block, marks=pytest.mark.slow) for block in range(1, 15))],
)
def test_nobody_loses_members_of_its_own_part_when_parts_meet(block: int) -> None:
    for seed in range(BLOCK * block, BLOCK * (block + 1)):
        meeting = meet(seed)
        story = "\n".join([f"seed {seed}: {meeting.what}", *meeting.told])
        assert meeting.lost_s <= KNOWN.get(seed, 0.0), story
        assert meeting.agreed_s <= 1.5 * TTL, story


def test_healed_partition_soon_drops_a_member_that_died_meanwhile() -> None:
    """The healing must not delay the removal of a dead member beyond the usual time."""
    cluster = Members(1, 6, heads=1)
    cluster.until_agreed(10.0)
    small = ["n0003", "n0004", "n0005"]
    cluster.cut(small, cluster.names[:3])
    cluster.run(TIMING.takeover_after_s + 3 * TTL)
    assert {m.node_id for m in cluster.nodes["n0003"].membership.view.members} == set(small)
    cluster.crash("n0005")
    cluster.net.cuts.clear()
    assert cluster.until_agreed(1.5 * TTL) <= 1.5 * TTL
