"""Limits of peer messages. A violation is refused with field and value."""

from typing import Any

import pytest

from peercached.membership.view import MEMBERS_MAX
from peercached.peer.membership.embedded import wire as member_wire
from peercached.peer.rpc import wire
from peercached.proto import peer_pb2 as pb


def address(**changes: object) -> pb.NodeAddress:
    fields: dict[str, Any] = {
        "node_id": "b",
        "incarnation": 1,
        "host": "10.0.0.2",
        "peer_port": 1,
        "data_port": 2,
        **changes,
    }
    return pb.NodeAddress(**fields)


def transports(*names: str, told: bytes = b"its part") -> list[pb.Transport]:
    return [pb.Transport(name=name, told=told) for name in names]


def view_of(*node_ids: str) -> pb.View:
    members = [pb.Member(address=address(node_id=n), state=pb.ALIVE) for n in node_ids]
    return pb.View(number=1, members=members)


def test_a_whole_address_survives_the_wire() -> None:
    message = address(pool_bytes=1 << 40, transports=transports("rdma", "ucx"))
    assert wire.address_message(wire.address_of(message)) == message


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({"node_id": ""}, "node id ''"),
        ({"node_id": "x" * 256}, "1 to 255 bytes"),
        ({"node_id": "ü" * 128}, "1 to 255 bytes"),
        ({"host": ""}, "host ''"),
        ({"host": "x" * 256}, "1 to 255 bytes"),
        ({"incarnation": 0}, "incarnation 0"),
        ({"peer_port": 0}, "port 0"),
        ({"peer_port": 65_536}, "port 65536"),
        ({"data_port": 0}, "port 0"),
        ({"data_port": 65_536}, "port 65536"),
        ({"transports": transports(*"abcde")}, "are 5; 4 are the limit"),
        ({"transports": transports("b", "a")}, "do not ascend"),
        ({"transports": transports("a,b")}, "have 'a,b'; 1 to 32 of a-z"),
        ({"transports": transports("tcp")}, "have 'tcp'; 1 to 32 of a-z"),
        ({"transports": transports("ucx", told=bytes(257))}, "ucx with 257 bytes"),
    ],
)
def test_invalid_address_is_refused_with_the_reason(changes: dict[str, object], wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong):
        wire.address_of(address(**changes))


def test_names_of_255_bytes_are_accepted() -> None:
    assert len(wire.address_of(address(node_id="x" * 255, host="y" * 255)).host) == 255


def test_the_members_of_a_view_ascend_and_are_there_once() -> None:
    assert [m.node_id for m in member_wire.update_of(view_of("a", "b")).members] == ["a", "b"]
    for ids in (("b", "a"), ("a", "a")):
        with pytest.raises(ValueError, match="do not ascend"):
            member_wire.update_of(view_of(*ids))


def test_the_members_of_a_view_are_bounded() -> None:
    ids = [f"n{number:05d}" for number in range(MEMBERS_MAX + 1)]
    member_wire.update_of(view_of(*ids[:-1]))
    with pytest.raises(ValueError, match=str(MEMBERS_MAX + 1)):
        member_wire.update_of(view_of(*ids))
