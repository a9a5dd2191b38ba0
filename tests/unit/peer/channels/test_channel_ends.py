"""The packed ends of an RDMA channel survive a round trip, and malformed ones are refused."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from peercached.peer.channels import ends as channel_ends
from peercached.proto import peer_pb2 as pb

GID = bytes(10) + b"\xff\xff\x0a\x63\x00\x01"
CLOSED = struct.pack("<3I", 7, 8, 1 << 31)


def packed_end(**changes: Any) -> bytes:
    fields = {
        "rail": 1, "qpn": 0x123456, "psn": 0xABCDEF, "lid": 0xC001, "mtu": 5, "rd_atomic": 16,
        "gid": GID, "link_layer": 2, "channel": 0xFFFFFFFE, **changes,
    }  # fmt: skip
    return channel_ends.END.pack(*fields.values())


def packed_answer(pool_bytes: int = 5 << 20, chunk_bytes: int = 2 << 20, keys: int = 3) -> bytes:
    access = struct.pack("<QQQQI", 99, 0x7F00_0000_0000, pool_bytes, chunk_bytes, keys)
    return packed_end() + access + struct.pack(f"<{keys}I", *range(1, keys + 1))


def test_an_end_is_forty_bytes() -> None:
    assert channel_ends.END.size == len(packed_end()) == 40


def test_an_offer_arrives_as_it_was_packed() -> None:
    sent = channel_ends.offer_message(packed_end(), CLOSED).SerializeToString()
    received = pb.ConnectChannelRequest.FromString(sent)
    assert channel_ends.offer_of(received) == (packed_end(), CLOSED)


@pytest.mark.parametrize(("pool_bytes", "keys"), [(5 << 20, 3), (4 << 20, 2), (1, 1)])
def test_an_answer_arrives_as_it_was_packed(pool_bytes: int, keys: int) -> None:
    packed = packed_answer(pool_bytes, keys=keys)
    sent = channel_ends.answer_message(packed).SerializeToString()
    assert channel_ends.answer_of(pb.ConnectChannelReply.FromString(sent), 99) == packed


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"rail": 64}, "rail is 64, not within 0..63"),
        ({"qpn": 0}, "qpn is 0"),
        ({"qpn": 1 << 24}, "qpn is 16777216"),
        ({"psn": 1 << 24}, "psn is 16777216"),
        ({"mtu": 0}, "mtu is 0, not within 1..5"),
        ({"mtu": 6}, "mtu is 6"),
        ({"rd_atomic": 0}, "rd_atomic is 0"),
        ({"gid": bytes(16)}, "gid of zeros"),
        ({"gid": b"\xff" + bytes(15)}, "multicast"),
        ({"link_layer": 0}, "link_layer is 0"),
        ({"link_layer": 3}, "link_layer is 3"),
    ],
)
def test_invalid_channel_end_is_refused_with_the_value(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        channel_ends.end_of(channel_ends.end_message(packed_end(**changes)))


def test_fields_wider_than_the_packed_ones_are_refused() -> None:
    for field, value in (("lid", 1 << 16), ("rd_atomic", 256)):
        message = channel_ends.end_message(packed_end())
        setattr(message, field, value)
        with pytest.raises(ValueError, match=f"{field} is {value}"):
            channel_ends.end_of(message)
    message = channel_ends.end_message(packed_end())
    message.gid = GID[1:]
    with pytest.raises(ValueError, match="gid has 15 bytes"):
        channel_ends.end_of(message)


def test_an_infiniband_end_needs_no_gid() -> None:
    packed = packed_end(gid=bytes(16), link_layer=1)
    assert channel_ends.end_of(channel_ends.end_message(packed)) == packed


@pytest.mark.parametrize(
    ("pool_bytes", "chunk_bytes", "keys"),
    [(5 << 20, 2 << 20, 2), (5 << 20, 2 << 20, 4), (0, 1, 0), (1, 0, 1), (1 << 40, 4096, 1)],
)
def test_keys_that_do_not_cover_the_pool_are_refused(
    pool_bytes: int, chunk_bytes: int, keys: int
) -> None:
    message = channel_ends.answer_message(packed_answer(pool_bytes, chunk_bytes, keys))
    with pytest.raises(ValueError, match=f"cannot have {keys} keys"):
        channel_ends.answer_of(message, 99)


def test_a_pool_beyond_the_address_space_is_refused() -> None:
    message = channel_ends.answer_message(packed_answer())
    message.pool_address = (1 << 64) - 4096
    with pytest.raises(ValueError, match="cannot be at"):
        channel_ends.answer_of(message, 99)


def test_answer_from_another_incarnation_is_refused() -> None:
    message = channel_ends.answer_message(packed_answer())
    with pytest.raises(ValueError, match="incarnation 99 answered for the pool of 98"):
        channel_ends.answer_of(message, 98)


def test_a_list_of_closed_channels_has_a_bound() -> None:
    message = channel_ends.offer_message(packed_end(), bytes(4 * 4097))
    with pytest.raises(ValueError, match="4097 closed channels"):
        channel_ends.offer_of(message)
