"""Malformed ends of channels are refused before a thread is taken for them."""

import pytest
from harness.channel_ends import end_of

from peercached.peer.channels.ends import check_closed, rail_of


def test_the_rail_of_an_end_has_a_bound() -> None:
    assert rail_of(end_of(rail=63)) == 63
    with pytest.raises(ValueError, match="rail 64; 64 are the limit"):
        rail_of(end_of(rail=64))
    with pytest.raises(ValueError, match="3 bytes"):
        rail_of(bytes(3))


def test_a_list_of_closed_channels_has_a_bound() -> None:
    check_closed(bytes(4 * 4096))
    with pytest.raises(ValueError, match="4097 closed channels"):
        check_closed(bytes(4 * 4097))
    with pytest.raises(ValueError, match="not a multiple of 4"):
        check_closed(bytes(5))
