"""Members, views and heartbeats on the wire: valid ones survive, invalid ones are refused."""

from __future__ import annotations

from typing import Any

import pytest

from peercached.membership import (
    Gone,
    Heartbeat,
    HeartbeatAnswer,
    Member,
    NodeAddress,
    State,
    Verdict,
    View,
    ViewUpdate,
)
from peercached.membership.flapping import SharedJoins
from peercached.membership.view import SEQUENCE_MAX
from peercached.peer.membership.embedded import wire as member_wire
from peercached.proto import peer_pb2 as pb

A = Member(
    NodeAddress("a", 7, "10.0.0.1", 1, 2, 1 << 40, (("rdma", b"x"),), bytes(32)),
    5,
    State.LEAVING,
    1,
)
B = Member(NodeAddress("b", 1, "host", 1, 2))
UPDATE = ViewUpdate(
    View.nothing().next([A, B]).number,
    (A, B),
    9,
    ("c", "d"),
    (Gone("c", 1, 2, State.LEFT, 1.5, b"k" * 32),),
    (SharedJoins("e", 2.5, 8.0, 0.25),),
)


def test_heartbeats_and_answers_survive_the_wire() -> None:
    for beat in (Heartbeat(A, 1 << 61, UPDATE), Heartbeat(B, 0)):
        message = member_wire.heartbeat_message(beat, [(b"n" * 16, 3)])
        assert member_wire.heartbeat_of(message) == beat
    for answer in (
        HeartbeatAnswer(Verdict.WAIT, "not yet", UPDATE, "a", 4, True),
        HeartbeatAnswer(Verdict.NOT_A_MASTER),
    ):
        assert member_wire.answer_of(member_wire.answer_message(answer, [])) == answer


def test_a_view_that_went_over_the_wire_has_its_mark() -> None:
    view = View.nothing().next([A, B])
    message = member_wire.update_message(ViewUpdate.whole(view))
    received = member_wire.update_of(pb.View.FromString(message.SerializeToString()))
    assert View.of(received.number, received.members, received.since).is_what_it_says


def member(**changes: Any) -> pb.Member:
    message = member_wire.member_message(A)
    message.MergeFrom(pb.Member(**changes))
    return message


@pytest.mark.parametrize(
    ("message", "wrong"),
    [
        (pb.View(members=[member(sequence=SEQUENCE_MAX)]), "sequence"),
        (pb.View(members=[member(address=pb.NodeAddress(key=b"short"))]), "key of 5 bytes"),
        (pb.View(joins=[pb.Joins(node_id="c", weight=float("nan"))]), "weight nan"),
        (pb.View(joins=[pb.Joins(node_id="c", gap_s=-1)]), "gap -1"),
        (pb.View(joins=[pb.Joins(node_id="")]), "node id ''"),
        (pb.View(gone=[pb.Gone(node_id="c", state=pb.DEAD, key=b"x")]), "key of 1 bytes"),
        (pb.View(members=[member(head_rank=1 << 20)]), "head number"),
        (pb.View(members=[member(state=pb.DEAD)]), "are dead"),
        (pb.View(gone=[pb.Gone(node_id="x", state=pb.ALIVE)]), "said to be gone and to be ALIVE"),
        (pb.View(gone=[pb.Gone(state=pb.DEAD)]), "node id ''"),
        (pb.View(gone=[pb.Gone(node_id="x")]), "no state"),
        (pb.View(without=["x"] * 5000), "5000 members less"),
        (pb.View(gone=[pb.Gone()] * 5000), "5000 nodes that are gone"),
    ],
)
def test_invalid_view_is_refused_with_the_reason(message: pb.View, wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong):
        member_wire.update_of(message)
