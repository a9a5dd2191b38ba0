"""Whether answers tell a node that owes all that it missed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from peercached.peer.removals.replies import Answers
from peercached.proto import peer_pb2 as pb


def answers(starts: bool = False, **replies: pb.MissedRemovalsReply) -> Answers:
    """For node "a". "m" has said that it owes. Members are "m" and "x"."""
    removals = SimpleNamespace(
        starts=starts, last_settled=1, waits_for={"m"}, ended_before_us=set(), absent=set()
    )
    return Answers(replies, cast(Any, removals), "a", {"m", "x"}, () if starts else {"m"})


def reply(
    known: bool = False, owes: bool = False, settled: bool = True, companions: tuple[str, ...] = ()
) -> pb.MissedRemovalsReply:
    return pb.MissedRemovalsReply(known=known, owes=owes, settled=settled, companions=companions)


def test_a_debt_to_a_third_node_needs_its_answer() -> None:
    of_x = reply(known=True, companions=("x",))
    waits = answers(m=of_x)
    assert waits.enough() is None and not waits.is_unknown()
    assert answers(m=of_x, x=reply(known=True, owes=True)).enough() is not None
    assert answers(m=of_x, x=reply()).enough() is not None, "it has heard meanwhile that we paid"
    cannot_tell = answers(m=of_x, x=reply(owes=True))
    assert cannot_tell.enough() is None and cannot_tell.is_unknown()


def test_a_member_that_saw_us_miss_nothing_is_not_enough_for_a_debt() -> None:
    for x in (reply(known=True), reply()):
        asked = answers(m=reply(owes=True), x=x)
        assert asked.enough() is None and asked.is_unknown()
    assert answers(m=reply(owes=True), x=reply(known=True, owes=True)).enough() is not None
    assert answers(starts=True, x=reply(known=True)).enough() is not None


def test_a_debt_that_was_paid_meanwhile_has_no_rows() -> None:
    assert answers(m=reply()).enough() == {}
    assert answers(x=reply(known=True, owes=True)).enough() is None, "m may name another removal"
