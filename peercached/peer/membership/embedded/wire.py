"""Converts membership's messages (peer.proto) to and from plain values. Malformed messages raise
ValueError with the bad value."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from peercached.membership import (
    Gone,
    Heartbeat,
    HeartbeatAnswer,
    Member,
    State,
    Verdict,
    ViewUpdate,
)
from peercached.membership.flapping import SharedJoins
from peercached.membership.view import MEMBERS_MAX, SEQUENCE_MAX
from peercached.peer.rpc.wire import (
    NAME_BYTES_MAX,
    address_message,
    address_of,
    epoch_messages,
    key_of,
)
from peercached.proto import peer_pb2 as pb

HEADS_MAX = 1 << 16
AGE_MS_MAX = (1 << 32) - 1
JOINS_NUMBER_MAX = 1e9


def member_message(member: Member, since: int = 0) -> pb.Member:
    return pb.Member(
        address=address_message(member.address),
        sequence=member.sequence,
        state=pb.MemberState.Name(int(member.state)),
        head_rank=member.head_rank + 1,
        since=since,
    )


def member_of(message: pb.Member) -> Member:
    address = address_of(message.address)
    if message.head_rank > HEADS_MAX:
        raise ValueError(f"node {address.node_id!r} cannot be head number {message.head_rank}")
    sequence = _sequence_of(address.node_id, message.sequence)
    return Member(address, sequence, _state_of(message.state), message.head_rank - 1)


def _sequence_of(node_id: str, sequence: int) -> int:
    if sequence >= SEQUENCE_MAX:
        raise ValueError(f"sequence {sequence} of node {node_id!r} is above all that can be")
    return sequence


def _state_of(state: int) -> State:
    try:
        return State(state)
    except ValueError as error:
        raise ValueError(f"{state} is no state of a member") from error


def _gone_message(gone: Gone) -> pb.Gone:
    return pb.Gone(
        node_id=gone.node_id,
        incarnation=gone.incarnation,
        sequence=gone.sequence,
        state=pb.MemberState.Name(int(gone.state)),
        age_ms=min(max(int(gone.age_s * 1000), 0), AGE_MS_MAX),
        key=gone.key,
    )


def _gone_of(message: pb.Gone) -> Gone:
    if not 0 < len(message.node_id.encode()) <= NAME_BYTES_MAX:
        raise ValueError(f"node id {message.node_id[:64]!r}: 1 to {NAME_BYTES_MAX} bytes are valid")
    state = _state_of(message.state)
    if state < State.DEAD:
        raise ValueError(f"{message.node_id!r} is said to be gone and to be {state.name}")
    sequence = _sequence_of(message.node_id, message.sequence)
    age_s = message.age_ms / 1000
    key = key_of(message.node_id, message.key)
    return Gone(message.node_id, message.incarnation, sequence, state, age_s, key)


def _joins_message(joins: SharedJoins) -> pb.Joins:
    return pb.Joins(
        node_id=joins.node_id,
        weight=joins.weight,
        gap_s=joins.gap_s,
        age_s=joins.age_s,
    )


def _joins_of(message: pb.Joins) -> SharedJoins:
    if not 0 < len(message.node_id.encode()) <= NAME_BYTES_MAX:
        raise ValueError(f"node id {message.node_id[:64]!r}: 1 to {NAME_BYTES_MAX} bytes are valid")
    for what, number in (
        ("weight", message.weight),
        ("gap", message.gap_s),
        ("age", message.age_s),
    ):
        if not 0 <= number <= JOINS_NUMBER_MAX:
            raise ValueError(f"the joins of {message.node_id[:64]!r} have the {what} {number}")
    return SharedJoins(message.node_id, message.weight, message.gap_s, message.age_s)


def update_message(update: ViewUpdate) -> pb.View:
    return pb.View(
        number=update.number,
        members=[member_message(m, update.since.get(m.node_id, 0)) for m in update.members],
        base=update.base,
        without=update.without,
        gone=[_gone_message(g) for g in update.gone],
        joins=[_joins_message(j) for j in update.joins],
    )


def update_of(message: pb.View) -> ViewUpdate:
    for what, count in (
        ("members", len(message.members)),
        ("members less", len(message.without)),
        ("nodes that are gone", len(message.gone)),
        ("nodes that came and went", len(message.joins)),
    ):
        if count > MEMBERS_MAX:
            raise ValueError(f"a view of {count} {what}; {MEMBERS_MAX} are the limit")
    members = tuple(member_of(m) for m in message.members)
    if any(a.node_id >= b.node_id for a, b in pairwise(members)):
        raise ValueError(f"the members of view {message.number} do not ascend by node id")
    if any(m.state >= State.DEAD for m in members):
        raise ValueError(f"view {message.number} has members that are dead")
    gone = tuple(_gone_of(g) for g in message.gone)
    joins = tuple(_joins_of(j) for j in message.joins)
    since = {m.address.node_id: m.since for m in message.members if m.since}
    without = tuple(message.without)
    return ViewUpdate(message.number, members, message.base, without, gone, joins, since)


def heartbeat_message(beat: Heartbeat, epochs: Iterable[tuple[bytes, int]]) -> pb.HeartbeatRequest:
    return pb.HeartbeatRequest(
        sender=member_message(beat.sender),
        view_number=beat.view_number,
        epochs=epoch_messages(epochs),
        view=None if beat.update is None else update_message(beat.update),
    )


def heartbeat_of(message: pb.HeartbeatRequest) -> Heartbeat:
    update = update_of(message.view) if message.HasField("view") else None
    return Heartbeat(member_of(message.sender), message.view_number, update)


def answer_message(
    answer: HeartbeatAnswer, epochs: Iterable[tuple[bytes, int]]
) -> pb.HeartbeatReply:
    return pb.HeartbeatReply(
        verdict=pb.HeartbeatReply.Verdict.Name(int(answer.verdict))
        if answer.verdict
        else pb.HeartbeatReply.VERDICT_UNSPECIFIED,
        reason=answer.reason,
        view=None if answer.update is None else update_message(answer.update),
        epochs=epoch_messages(epochs),
        responder=answer.responder,
        accused=answer.accused,
        wants_view=answer.wants_view,
    )


def answer_of(message: pb.HeartbeatReply) -> HeartbeatAnswer:
    try:
        verdict = Verdict(message.verdict)
    except ValueError:
        verdict = Verdict.UNSPECIFIED  # a newer version sent a verdict that we do not know
    update = update_of(message.view) if message.HasField("view") else None
    accused = _sequence_of(message.responder, message.accused)
    return HeartbeatAnswer(
        verdict, message.reason, update, message.responder, accused, message.wants_view
    )
