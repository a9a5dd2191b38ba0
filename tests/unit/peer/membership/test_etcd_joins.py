"""A node's join history in etcd, and which process may claim a node id there."""

import pytest

from peercached.membership import Member, NodeAddress, Timing, Verdict
from peercached.membership.claims import EtcdClaim
from peercached.membership.flapping import Joins
from peercached.peer.membership.etcd.joins import joins_of, value_of

TIMING = Timing(heartbeat_interval_s=1.0, member_ttl_s=5.0)


def test_joins_round_trip_between_different_clocks() -> None:
    joins = Joins(6.25, 42.5, 970.0, 1000.0)
    assert joins_of(value_of(joins, 1000.0), 77.0) == Joins(6.25, 42.5, 47.0, 77.0)


@pytest.mark.parametrize(
    "value",
    [b"", b"x", b"7.000 0.0", b"7.000 0.0 0.0 2", b"-7.000 0.0 0.0", b"nan 0.0 0.0"],
)
def test_malformed_joins_are_read_as_none(value: bytes) -> None:
    assert joins_of(value, 77.0) is None


def member(incarnation: int, host: str = "here") -> Member:
    return Member(NodeAddress("n", incarnation, host, 1, 2))


def test_an_older_start_here_gives_way_at_once() -> None:
    claim = EtcdClaim(member(2).address, TIMING)
    for other in (None, member(2), member(1)):
        assert claim.judge(other, 100.0) is Verdict.ACCEPTED


@pytest.mark.parametrize("other", [member(1, "elsewhere"), member(3)])
def test_a_process_that_keeps_its_lease_keeps_the_node_id(other: Member) -> None:
    claim = EtcdClaim(member(2).address, TIMING)
    assert claim.judge(other, 100.0) is Verdict.WAIT
    assert claim.judge(other, 100.0 + TIMING.lease_over_s) is Verdict.WAIT
    assert claim.judge(other, 100.1 + TIMING.lease_over_s) is Verdict.DUPLICATE
    assert claim.judge(None, 110.0) is Verdict.ACCEPTED
    assert claim.judge(other, 120.0) is Verdict.WAIT
