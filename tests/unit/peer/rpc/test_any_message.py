"""Messages of peers, with any bytes changed: each is taken, or refused with a reason.
`make test-fuzz` tries many more."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from harness.channel_ends import end_of
from harness.liar import fill
from hypothesis import given, settings
from hypothesis import strategies as st

from peercached.peer.channels import ends
from peercached.peer.membership.embedded import wire as member_wire
from peercached.peer.rpc import wire
from peercached.peer.rpc.parse import PARTS_MAX, parser
from peercached.proto import peer_pb2 as pb

_METHODS = pb.DESCRIPTOR.services_by_name["Peer"].methods
MESSAGES = [
    getattr(pb, message.name)
    for method in _METHODS
    for message in (method.input_type, method.output_type)
]


def read_offer(message: Any) -> None:
    ends.rail_of(message.end)
    ends.check_closed(message.closed)


READERS: dict[Any, Callable[[Any], Any]] = {
    pb.ConnectChannelRequest: read_offer,
    pb.ConnectChannelReply: lambda message: ends.rail_of(message.answer),
    pb.HeartbeatRequest: member_wire.heartbeat_of,
    pb.HeartbeatReply: member_wire.answer_of,
    pb.ProbeRequest: lambda message: wire.address_of(message.target),
}


@st.composite
def changed(draw: st.DrawFn, message: Any) -> bytes:
    data = bytearray(message.SerializeToString())
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, max(len(data) - 1, 0)))
        if draw(st.integers(0, 3)):
            data[at : at + 1] = draw(st.binary(min_size=1, max_size=1))
        else:
            piece = draw(st.binary(max_size=12) | st.just(bytes(data[:at])))
            data[at : at + draw(st.integers(0, 12))] = piece
    return bytes(data)


@settings(max_examples=20 * settings().max_examples)
@given(kind=st.sampled_from([*MESSAGES, *20 * list(READERS)]), choice=st.data())
def test_changed_message_is_taken_or_refused_with_a_reason(kind: Any, choice: Any) -> None:
    real = kind()
    if kind is pb.ConnectChannelRequest:
        real = pb.ConnectChannelRequest(end=end_of(), closed=bytes(8))
    elif kind is pb.ConnectChannelReply:
        real = pb.ConnectChannelReply(answer=end_of())
    else:
        fill(real)
    message = parser(kind)(choice.draw(changed(real)))
    if isinstance(message, ValueError):
        assert str(message)
    elif read := READERS.get(kind):
        with contextlib.suppress(ValueError):
            read(message)


def part(field: Any, inner: bytes = b"") -> bytes:
    return bytes([field.number << 3 | 2, len(inner)]) + inner


def parts_of(kind: Any) -> list[bytes]:
    """For each list in the message, also in parts of it, the shortest bytes that add to it."""
    found = []
    for field in kind.DESCRIPTOR.fields:
        if field.is_repeated:
            found.append(part(field, bytes(8) if field.is_packed else b""))
        elif field.message_type is not None and field.containing_oneof is None:
            inner = getattr(pb, field.message_type.name, None)
            found += [part(field, data) for data in parts_of(inner)] if inner else []
    return found


def test_only_a_message_of_too_many_parts_is_refused_unparsed() -> None:
    for kind in MESSAGES:
        for data in parts_of(kind):
            refused = parser(kind)(data * (2 * PARTS_MAX))
            assert isinstance(refused, ValueError) and "parts" in str(refused)
    few = pb.RemoveReply(digests=bytes(20 << 20), silent=[pb.NodeAddress()] * 1000)
    assert parser(pb.RemoveReply)(few.SerializeToString()) == few
